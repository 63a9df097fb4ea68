"""Tables, figures and claims of a study."""
