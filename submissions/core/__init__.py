"""Building blocks of submissions: refusals, form fields for names, strict JSON, and system checks."""
