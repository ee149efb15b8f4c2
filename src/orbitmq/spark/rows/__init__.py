"""From stored records to rows: schema, columns and decoders."""
