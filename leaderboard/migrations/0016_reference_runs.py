from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("leaderboard", "0015_topic_sources"),
    ]

    operations = [
        migrations.AlterField(
            model_name="entry",
            name="run_type",
            field=models.CharField(
                blank=True,
                choices=[
                    ("automatic", "automatic"),
                    ("manual", "manual"),
                    ("closed", "closed book (reference)"),
                    ("gold", "gold evidence (reference)"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="run_type",
            field=models.CharField(
                blank=True,
                choices=[
                    ("automatic", "automatic"),
                    ("manual", "manual"),
                    ("closed", "closed book (reference)"),
                    ("gold", "gold evidence (reference)"),
                ],
                max_length=10,
            ),
        ),
    ]
