"""Add `format` to databases that applied `0004_shard_manifest` before that migration had the column."""

from django.db import migrations


def add_missing_column(apps, schema_editor):
    """Add the column where the table lacks it."""
    model = apps.get_model("submissions", "Encoding")
    with schema_editor.connection.cursor() as cursor:
        columns = schema_editor.connection.introspection.get_table_description(cursor, model._meta.db_table)
    if "format" not in {column.name for column in columns}:
        schema_editor.add_field(model, model._meta.get_field("format"))


class Migration(migrations.Migration):
    dependencies = [("submissions", "0004_shard_manifest")]

    operations = [migrations.RunPython(add_missing_column, migrations.RunPython.noop)]
