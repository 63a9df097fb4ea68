"""Training with E-Closure: families to an adapter, inside a Transformers Trainer; selection and the switch test."""
