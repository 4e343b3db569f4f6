"""Forms of webhooks."""

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from submissions.notifications.webhook_client import AddressRefused, parse_target


class WebhookForm(forms.Form):
    """Where results are to be sent."""

    url = forms.CharField(
        label=_("Address"),
        max_length=500,
        widget=forms.URLInput(attrs={"placeholder": "https://", "autocomplete": "off"}),
        help_text=_("https, port 443 or 8443, on the internet. Each message is signed."),
    )

    def clean_url(self) -> str:
        """The address. Raises ValidationError for one that nothing is sent to."""
        url: str = self.cleaned_data["url"]
        try:
            parse_target(url)
        except AddressRefused as refusal:
            raise ValidationError(str(refusal)) from None
        return url
