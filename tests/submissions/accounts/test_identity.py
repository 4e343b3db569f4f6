"""Second factors with real codes, rights of staff that rest without one, sessions that can be ended."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.core.mail.backends.base import BaseEmailBackend
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client

from leaderboard.core.permissions import make_curator
from leaderboard.models import AuditRecord, Dataset, User
from leaderboard.settings import security
from submissions.accounts import access
from submissions.accounts.access import make_token
from submissions.models import AccountMail, ApiToken
from submissions.notifications.sending import has_notifications
from tests.factories import make_user
from tests.submissions.clients import show_again
from tests.submissions.outbox import account_mail
from tests.submissions.totp import code_now

pytestmark = pytest.mark.django_db
PASSWORD = "a long passphrase"


@pytest.fixture(autouse=True)
def commit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the callbacks of commits inside the request, as on the site. The transaction of a test never commits."""
    monkeypatch.setattr(transaction, "on_commit", lambda then, **options: then())


@pytest.fixture
def curator(settings: Any) -> User:
    """Somebody who curates and may read judgements, on a site where staff need a second factor."""
    settings.STAFF_MFA_REQUIRED = True
    person = make_user("Cora")
    person.set_password(PASSWORD)
    person.save()
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    make_curator(person, read_qrels=True)
    return person


def sign_in(person: User, **headers: str) -> Client:
    """A browser in which the person typed address and password."""
    client = Client(headers=headers or None)
    client.post("/account/login/", {"login": person.email, "password": PASSWORD})
    return client


def enrol(client: Client, person: User) -> str:
    """Set a second factor up on the page, as people do; its secret."""
    show_again(client, person)
    page = client.get("/account/2fa/totp/activate/").content.decode()
    found = re.search(r'class="secret">([A-Z2-7]+)<', page)
    assert found, page
    answer = client.post("/account/2fa/totp/activate/", {"code": code_now(found[1])})
    assert answer.status_code == 302, answer.content.decode()
    return found[1]


def test_a_right_code_switches_it_on_and_the_secret_lies_encrypted(curator: User) -> None:
    client = sign_in(curator)
    secret = enrol(client, curator)
    assert secret not in str(list(Authenticator.objects.values()))
    assert len(re.findall(r"<li><code>\d+</code>", client.get("/account/2fa/recovery-codes/").content.decode())) == 10
    subject = account_mail()[-1].subject.lower()
    assert "second factor" in subject or "authenticator" in subject


def test_who_has_one_shows_it_again_and_not_the_password(curator: User, settings: Any) -> None:
    """Otherwise, a thief of the password and a session could confirm with the password."""
    client = sign_in(curator)
    secret = enrol(client, curator)
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0
    client.post("/account/tokens/", {"name": "x", "scopes": ["read"], "days": "7"})
    asked = client.get("/account/tokens/", follow=True)
    assert asked.redirect_chain[-1][0] == "/account/2fa/reauthenticate/?next=%2Faccount%2Ftokens%2F"
    assert "password" not in asked.content.decode().split("<main")[1].split("</main")[0].lower()
    other_way = client.post("/account/reauthenticate/", {"password": PASSWORD, "next": "/account/tokens/"})
    assert other_way["Location"].startswith("/account/2fa/reauthenticate/")
    assert not ApiToken.objects.exists()
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 300
    sent = {"code": code_now(secret, 1), "next": "/account/tokens/"}
    shown = client.post("/account/2fa/reauthenticate/", sent, follow=True)
    assert "Your new token" in shown.content.decode()


def test_an_address_is_verified_before_a_second_factor_is_set_up(settings: Any) -> None:
    person = make_user("Nina")
    EmailAddress.objects.create(user=person, email=person.email, verified=False, primary=True)
    client = Client()
    client.force_login(person)
    page = client.get("/account/2fa/").content.decode()
    assert f"Verify {person.email} first" in page
    assert "Add a passkey" not in page
    sent = client.post("/account/email/", {"action_send": "", "email": person.email}, follow=True)
    assert f"We sent a link to verify {person.email}." in sent.content.decode()
    assert account_mail()[0].to == [person.email]
    EmailAddress.objects.update(verified=True)
    assert "Add a passkey" in client.get("/account/2fa/").content.decode()


def test_a_wrong_code_switches_nothing_on(curator: User) -> None:
    client = sign_in(curator)
    show_again(client, curator)
    client.get("/account/2fa/totp/activate/")
    answer = client.post("/account/2fa/totp/activate/", {"code": "000000"})
    assert "This code is wrong" in answer.content.decode()
    assert not Authenticator.objects.exists()


def test_signing_in_asks_for_the_code_and_takes_each_once(curator: User) -> None:
    secret = enrol(sign_in(curator), curator)
    code = code_now(secret)
    for status in (302, 200):
        client = sign_in(curator)
        assert client.get("/submissions/").status_code == 302  # the password alone is not enough
        assert client.post("/account/2fa/authenticate/", {"code": code}).status_code == status
    assert client.get("/submissions/").status_code == 302  # nobody comes in with a code that was used


def test_a_recovery_code_signs_in_once(curator: User) -> None:
    first = sign_in(curator)
    enrol(first, curator)
    code = re.findall(r"<code>(\d+)</code>", first.get("/account/2fa/recovery-codes/").content.decode())[0]
    for status in (302, 200):
        assert sign_in(curator).post("/account/2fa/authenticate/", {"code": code}).status_code == status


def test_without_a_second_factor_staff_have_no_rights_anywhere(curator: User) -> None:
    hidden = Dataset.objects.create(slug="next", name="Next", state=Dataset.State.PREPARING)
    client = sign_in(curator)
    answer = client.get("/admin/leaderboard/dataset/", follow=True)
    assert answer.redirect_chain[-1][0] == "/account/2fa/"
    assert client.get(f"/datasets/{hidden.slug}/files/x").status_code == 404
    assert client.post("/admin/login/", {"username": curator.email, "password": PASSWORD}).status_code == 302
    assert client.get("/submissions/").status_code == 200  # what everybody has is theirs


def test_with_it_they_have(curator: User) -> None:
    client = sign_in(curator)
    enrol(client, curator)
    assert client.get("/admin/leaderboard/dataset/").status_code == 200


def test_a_superuser_without_it_reads_nothing_either(curator: User) -> None:
    User.objects.filter(pk=curator.pk).update(is_superuser=True)
    answer = sign_in(curator).get("/admin/leaderboard/qrels/")
    assert answer.status_code == 302


def test_it_holds_for_hours_not_for_ever(curator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client = sign_in(curator)
    enrol(client, curator)
    monkeypatch.setattr(access, "STAFF_SESSION_HOURS", 0)
    answer = client.get("/admin/leaderboard/dataset/", follow=True)
    assert answer.redirect_chain[-1][0].startswith("/account/2fa/reauthenticate/")


def test_a_token_of_staff_carries_no_rights_of_staff(curator: User, client: Client) -> None:
    Dataset.objects.create(slug="next", name="Next", state=Dataset.State.PREPARING)
    headers = {"Authorization": f"Bearer {make_token(curator, 'x')}"}
    assert client.get("/api/v1/datasets/next/files/", headers=headers).status_code == 404


def test_staff_cannot_switch_it_off(curator: User) -> None:
    client = sign_in(curator)
    enrol(client, curator)
    overview = client.get("/account/2fa/").content.decode()
    assert "this is your only one" in overview
    assert "deactivate" not in overview
    show_again(client, curator, "mfa")
    page = client.post("/account/2fa/totp/deactivate/").content.decode()
    assert "Curators need a second factor" in page
    assert Authenticator.objects.filter(type="totp").exists()


def test_the_admin_has_no_password_form_of_its_own(db: None, client: Client) -> None:
    answer = client.get("/admin/login/?next=/admin/leaderboard/dataset/")
    assert answer["Location"] == "/account/login/?next=%2Fadmin%2Fleaderboard%2Fdataset%2F"
    away = client.get("/admin/login/?next=https://elsewhere.example/")
    assert "elsewhere" not in away["Location"]
    member = make_user("Max")
    client.force_login(member)
    assert client.get("/admin/login/").status_code == 403


@pytest.mark.parametrize("table", ["mfa/authenticator", "usersessions/usersession"])
def test_no_table_in_the_admin_takes_it_away_without_a_record(admin_client: Client, table: str) -> None:
    assert admin_client.get(f"/admin/{table}/").status_code == 404


def test_an_operator_resets_it_and_that_is_recorded(curator: User, capsys: Any) -> None:
    client = sign_in(curator)
    enrol(client, curator)
    make_token(curator, "x")
    operator = make_user("Otto")
    call_command("reset_second_factor", curator.email, by=operator.email, why="known by voice")
    assert not Authenticator.objects.exists()
    assert not ApiToken.objects.exists()
    assert client.get("/submissions/").status_code == 302
    record = AuditRecord.objects.get(action="second factor reset")
    assert (record.actor, record.reason) == (operator, "known by voice")
    for whose, by in (("nobody@example.org", operator.email), (curator.email, "nobody@example.org")):
        with pytest.raises(CommandError, match="no account"):
            call_command("reset_second_factor", whose, by=by, why="x")


def test_only_the_default_on_this_machine_goes_without(settings: Any) -> None:
    assert security.STAFF_MFA_REQUIRED is False  # as these tests run: embedded, and nothing but loopback names
    assert security.needs_second_factor(embedded=True, behind_proxy=False, hosts=["127.0.0.1", "localhost"]) is False
    assert security.needs_second_factor(embedded=True, behind_proxy=True, hosts=["127.0.0.1"])
    assert security.needs_second_factor(embedded=True, behind_proxy=False, hosts=["127.0.0.1", "board.example"])
    assert security.needs_second_factor(embedded=False, behind_proxy=False, hosts=["localhost"])
    assert security.needs_second_factor(embedded=True, behind_proxy=False, hosts=["*"])


FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Safari/604.1"


@pytest.fixture
def two(settings: Any) -> tuple[Client, Client]:
    """Two browsers of one person."""
    person = make_user("Tom")
    person.set_password(PASSWORD)
    person.save()
    return sign_in(person, user_agent=FIREFOX), sign_in(person, user_agent=PHONE)


def test_sessions_are_listed_with_device_and_place(two: tuple[Client, Client]) -> None:
    page = two[0].get("/account/sessions/").content.decode()
    assert "Firefox on Linux" in page
    assert "Safari on iPhone" in page
    assert page.count("127.0.0.1 ·") == 2


def test_one_session_is_ended_from_another(two: tuple[Client, Client]) -> None:
    page = two[0].get("/account/sessions/").content.decode()
    (key,) = re.findall(r'name="session" value="(\d+)"', page)
    two[0].post("/account/sessions/end/", {"session": key})
    assert two[1].get("/submissions/").status_code == 302
    assert two[0].get("/submissions/").status_code == 200


def test_all_others_end_at_once_and_strangers_stay(two: tuple[Client, Client]) -> None:
    stranger = make_user("Sid")
    theirs = Client()
    theirs.force_login(stranger)
    two[1].post("/account/sessions/end/", {"session": "others"})
    assert two[0].get("/submissions/").status_code == 302
    assert two[1].get("/submissions/").status_code == 200
    assert theirs.get("/submissions/").status_code == 200


def test_nobody_ends_somebody_elses(two: tuple[Client, Client]) -> None:
    page = two[0].get("/account/sessions/").content.decode()
    (key,) = re.findall(r'name="session" value="(\d+)"', page)
    other = Client()
    other.force_login(make_user("Sid"))
    for value in (key, "-1", "x", ""):
        other.post("/account/sessions/end/", {"session": value})
    assert two[1].get("/submissions/").status_code == 200


@pytest.fixture
def with_mail(settings: Any) -> None:
    """A site that can send mail."""
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"


def sign_up(email: str) -> Any:
    """Sign up with the address as a visitor, and return the response."""
    fields = {"email": email, "team_name": "New Lab", "password1": PASSWORD, "password2": PASSWORD}
    return Client().post("/account/signup/", fields)


def test_where_there_is_mail_an_address_is_verified_before_anything(with_mail: None) -> None:
    sign_up("new@example.org")
    person = User.objects.get()
    assert sign_in(person).get("/submissions/").status_code == 302
    found = re.search(r"https?://[^/]+(/account/confirm-email/\S+)", account_mail()[0].body)
    assert found
    Client().post(found[1])
    assert sign_in(person).get("/submissions/").status_code == 200


class ServerAway(BaseEmailBackend):
    """A mail server that is away."""

    def send_messages(self, messages: Any) -> int:
        """Refuse."""
        raise ConnectionRefusedError


def test_a_mail_server_that_is_away_costs_nobody_an_answer_and_is_tried_again(with_mail: None, settings: Any) -> None:
    working = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = f"{__name__}.ServerAway"
    person = make_user("Ada")
    assert sign_up("new@example.org").status_code == 302
    reset = [Client().post("/account/password/reset/", {"email": to}) for to in (person.email, "no@x.org")]
    assert [each.status_code for each in reset] == [302, 302]
    assert has_notifications()
    assert account_mail() == []
    settings.EMAIL_BACKEND = working
    AccountMail.objects.update(not_before=None)
    assert {each.to[0] for each in account_mail()} >= {"new@example.org", person.email}
    assert not AccountMail.objects.exists()  # nor any secret of a link


def test_what_cannot_be_sent_is_given_up_with_its_secret(with_mail: None, settings: Any) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.ServerAway"
    sign_up("new@example.org")
    for _ in range(3):
        assert AccountMail.objects.exists()
        AccountMail.objects.update(not_before=None)
        account_mail()
    assert not AccountMail.objects.exists()


def test_signing_up_tells_nobody_who_has_an_account(with_mail: None) -> None:
    known, unknown = sign_up(make_user("Ada").email), sign_up("nobody@example.org")
    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    assert "already" in account_mail()[0].body  # the owner of the address is told, nobody else


def test_a_second_address_counts_once_it_is_verified(with_mail: None, curator: User) -> None:
    client = sign_in(curator)
    show_again(client, curator)
    client.post("/account/email/", {"action_add": "", "email": "other@example.org"})
    client.post("/account/email/", {"action_primary": "", "email": "other@example.org"})
    curator.refresh_from_db()
    assert curator.email != "other@example.org"


def test_accounts_are_closed_not_deleted(admin_client: Client) -> None:
    person = make_user("Max")
    theirs = Client()
    theirs.force_login(person)
    assert admin_client.post(f"/admin/leaderboard/user/{person.pk}/delete/", {"post": "yes"}).status_code == 403
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert theirs.get("/submissions/").status_code == 302
    assert person.teams.count() == 1


def test_codes_are_good_under_the_key_that_was_replaced(curator: User, settings: Any) -> None:
    secret = enrol(sign_in(curator), curator)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key of this site", [settings.SECRET_KEY]
    client = sign_in(curator)
    assert client.post("/account/2fa/authenticate/", {"code": code_now(secret)}).status_code == 302
    assert client.get("/submissions/").status_code == 200


def test_a_changed_password_stays_changed_where_nobody_can_be_told(client: Client, settings: Any) -> None:
    person = make_user()
    person.set_password("the one before this one")
    person.save()
    client.post("/account/login/", {"login": person.email, "password": "the one before this one"})
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    new = "a horse that staples correctly"
    sent = {"oldpassword": "the one before this one", "password1": new, "password2": new}
    assert client.post("/account/password/change/", sent).status_code == 302
    person.refresh_from_db()
    assert person.check_password(new)
    assert AccountMail.objects.exists()  # it waits for the server
