"""Admin of rolling benchmarks that shows the jobs of their renewals."""

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery

from leaderboard.admin.topic_sources import TopicSourceAdmin
from leaderboard.importing.topics.renewal import renewal_obstacle
from leaderboard.models import TopicSource
from submissions.models import Job, State


@admin.register(TopicSource)
class RenewalAdmin(TopicSourceAdmin):
    """Admin of rolling benchmarks that shows failed renewals until a later one succeeds."""

    pending = ("renewal of a rolling benchmark failed", "renewals of rolling benchmarks failed", "")
    pending_since = ""

    def pending_rows(self) -> QuerySet[TopicSource]:
        states = Job.objects.filter(kind=Job.Kind.RENEW, dataset=OuterRef("dataset")).order_by("-pk").values("state")
        return TopicSource.objects.annotate(last=Subquery(states[:1])).filter(last__in=(State.FAILED, State.TIMED_OUT))

    @admin.display
    def last_renewal(self, source: TopicSource) -> str:
        job = Job.objects.filter(kind=Job.Kind.RENEW, dataset=source.dataset_id).order_by("-pk").first()
        text = f"{job.get_state_display()}: {job.log}" if job else "none"
        obstacle = renewal_obstacle(source) if source.pk else ""
        return f"{text}. The next one waits: {obstacle}" if obstacle else text
