"""`peacefs certificates`, declared: a trial CA, the certificates that it signs, and what a certificate says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peacefs.protocol.limits import trial_authority_days, trial_certificate_days_default

if TYPE_CHECKING:
    from peacefs.client.local_cluster.trial_certificates import TrialAuthority

certificates = typer.Typer(
    help="Make and show certificates of a trial cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@certificates.command()
def create(
    directory: Annotated[
        Path,
        typer.Option(
            "--directory", metavar="DIR", help="Directory of the CA and its certificates, made if needed."
        ),
    ],
    hosts: Annotated[
        list[str],
        typer.Option(
            "--host",
            metavar="NAME,...",
            help="Names and addresses of one machine; repeat for each machine. Replaces an existing certificate.",
            show_default=False,
        ),
    ],
    days: Annotated[
        int,
        typer.Option("--days", metavar="N", min=1, max=trial_authority_days, help="Validity of the certificates."),
    ] = trial_certificate_days_default,
) -> None:
    """Make certificates, signed by a CA in DIR.

    Makes the CA first if there is none. Prints the options of services and clients, and the settings of Spark.
    """
    from peacefs.client.local_cluster.trial_certificates import TrialAuthority

    machines = [[name for name in text.split(",") if name] for text in hosts]
    if not all(machines):
        raise typer.BadParameter("a name or an address is wanted", param_hint="--host")
    authority = TrialAuthority(directory.absolute())
    for names in machines:
        files = authority.issue(names, days)
        sys.stdout.write(
            f"services on {', '.join(names)}:\n"
            f"  --tls-certificate {files.certificate} --tls-key {files.key} --tls-ca {files.ca}\n"
        )
    sys.stdout.write(
        f"clients:\n  PEACEFS_CA_FILE={authority.ca}, or peacefs --ca-file {authority.ca} COMMAND\nSpark:\n"
    )
    for line in _spark_settings(authority):
        sys.stdout.write(f"  --conf {line}\n")
    sys.stdout.write(
        f"The certificates are valid for {days} days at most, the CA until {authority.ends:%Y-%m-%d}. Files that\n"
        "are replaced are taken without a restart. Keep ca-key.pem away from the services.\n"
    )


def _spark_settings(authority: TrialAuthority) -> list[str]:
    from peacefs.spark_connector.session import truststore_settings

    table = truststore_settings(str(authority.truststore))
    return [f"{setting.key}={setting.value}" for setting in table]


@certificates.command()
def show(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Certificate files in PEM.", show_default=False)
    ],
) -> None:
    """Show the subject, hosts and expiry of certificates."""
    from datetime import UTC, datetime

    from peacefs.client.local_cluster.trial_certificates import read_certificates

    now = datetime.now(UTC)
    for file in files:
        for described in read_certificates(file):
            left = described.days_left(now)
            state = f"{left:.0f} days left" if left > 0 else "expired"
            if described.begins > now:
                state = "not valid yet"
            lines = {
                "file": str(file),
                "subject": described.subject,
                "issuer": described.issuer,
                "hosts": "(a CA)" if described.is_ca else ", ".join(described.hosts) or "none",
                "valid": f"{described.begins:%Y-%m-%d %H:%M} to {described.ends:%Y-%m-%d %H:%M} UTC, {state}",
                "SHA-256": described.sha256,
            }
            for name, value in lines.items():
                sys.stdout.write(f"{name + ':':9}{value}\n")
