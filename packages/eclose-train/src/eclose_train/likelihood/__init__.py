"""Log-likelihoods of steps, traces and answers, all of a family in one forward."""
