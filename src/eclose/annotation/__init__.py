"""Human annotation of responses, questions and families, with staged disclosure enforced by a server."""
