"""`midstream demo`: an auction under load that is changed while it runs, and verified."""
