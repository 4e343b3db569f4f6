from importlib import import_module

from leaderboard.core.text_migration import TextMigration

reworded_texts = import_module("submissions.migrations.0006_reworded_texts").Migration


class Migration(TextMigration):

    replaces = [("submissions", "0006_reworded_texts")]

    dependencies = reworded_texts.dependencies

    operations = reworded_texts.operations
