"""Tables that pipelines write batch by batch, each batch in one transaction."""
