from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("submissions", "0009_topic_sources"),
    ]

    operations = [
        migrations.AlterField(
            model_name="submission",
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
