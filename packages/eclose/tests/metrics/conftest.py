from hypothesis import settings

# A busy machine is no reason to fail, and fifty examples a property keep the whole quick.
settings.register_profile("patient", deadline=None, max_examples=50)
settings.load_profile("patient")
