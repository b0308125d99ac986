"""What became of a certificate is said part by part."""

from ilp_planner.faces.report.evaluation import certificate_table
from ilp_planner.faces.report.json_report import certificate_object
from ilp_planner.optimize.certificate import CertificateCheck, PartCheck
from tests.faces.report.texts import text_of


def test_a_certificate_part_by_part() -> None:
    parts = [
        PartCheck(part="4 micro-batches", claimed=1.0, rederived=r, by="dp") for r in (1.0, 0.5)
    ]
    check = CertificateCheck(parts=tuple(parts))
    rows = text_of(certificate_table(check)).splitlines()
    assert rows[1].rstrip().endswith("yes")
    assert rows[2].rstrip().endswith("NO")
    value = certificate_object(check, 1.0)
    assert (value["gap"], value["parts"][1]["holds"]) == (0.5, False)


def test_a_certificate_of_micro_batches() -> None:
    check = CertificateCheck(parts=(PartCheck(part=4, claimed=1.0, rederived=1.0, by="work"),))
    assert text_of(certificate_table(check, "micro-batch")).startswith("micro-batch")
    value = certificate_object(check, 1.0, "micro_batch")
    assert value["parts"][0]["micro_batch"] == 4
