from importlib import import_module

from leaderboard.core.text_migration import TextMigration

reworded_texts = import_module("leaderboard.migrations.0008_reworded_texts").Migration


class Migration(TextMigration):

    replaces = [("leaderboard", "0008_reworded_texts")]

    dependencies = reworded_texts.dependencies

    operations = reworded_texts.operations
