"""The judge as a guest of other evaluation frameworks, a module for each."""
