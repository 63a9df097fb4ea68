"""Construction of counterfactual families by models, stage by stage."""
