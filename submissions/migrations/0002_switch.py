from django.db import migrations, models


def add_switches(apps, schema_editor):
    """Each switch, off."""
    apps.get_model("submissions", "Switch").objects.create(name="hub_downloads")


class Migration(migrations.Migration):
    dependencies = [("submissions", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Switch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        choices=[("hub_downloads", "workers fetch models from the hub")], max_length=40, unique=True
                    ),
                ),
                ("is_on", models.BooleanField(default=False, verbose_name="on")),
                ("changed_at", models.DateTimeField(auto_now=True)),
            ],
            options={"ordering": ["name"], "verbose_name_plural": "switches"},
        ),
        migrations.RunPython(add_switches, migrations.RunPython.noop, elidable=True),
    ]
