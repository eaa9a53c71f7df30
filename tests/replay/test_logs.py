"""Reading recorded traffic: what is understood, and one sentence with line and column for what is not."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from queuewise.replay import read_log, read_rates

DATA = Path(os.environ.get("QUEUEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")


def recorded(name: str) -> Path:
    """A recorded file, or a skip that says what is missing."""
    if not (DATA / name).is_file():
        pytest.skip(f"{name} is not in QUEUEWISE_DATA")
    return DATA / name


def written(folder: Path, text: str, name: str = "log.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


GOOD = "time,tokens,who\n10,5,a\n10.5,7,b\n12,1,a\n"


def test_times_start_at_zero_and_columns_are_found(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, GOOD), size="tokens", server="who")
    assert log.times.tolist() == [0.0, 0.5, 2.0]
    assert log.sizes.tolist() == [5.0, 7.0, 1.0]
    assert log.servers == ("a", "b", "a") and log.unit == "tokens" and not log.dropped
    assert (len(log), log.span, log.rate) == (3, 2.0, 1.0)


def test_without_sizes_every_job_counts_one_and_durations_count_as_seconds(tmp_path: Path) -> None:
    assert read_log(written(tmp_path, GOOD)).sizes.tolist() == [1.0, 1.0, 1.0]
    log = read_log(written(tmp_path, GOOD), duration="tokens")
    assert log.sizes.tolist() == [5.0, 7.0, 1.0] and log.unit == "s"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_gzip_delimiters_quotes_and_byte_order_mark(tmp_path: Path, delimiter: str) -> None:
    text = '\ufeff"time",size\n\n1,"2"\n3,4\n'.replace(",", delimiter)
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    log = read_log(path)
    assert log.times.tolist() == [0.0, 2.0] and log.sizes.tolist() == [2.0, 4.0]


def test_texts_of_another_encoding_and_an_index_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(",time,server\n0,1,Zoë\n1,2,Jan\n".encode("cp1252"))
    assert read_log(tmp_path / "log.csv", encoding="cp1252").servers == ("Zoë", "Jan")
    with pytest.raises(ValueError, match=r"line 2: is not utf-8 text .* encoding='cp1252'"):
        read_log(tmp_path / "log.csv")
    (tmp_path / "rates.csv").write_bytes(",Zoë\n0,1\n5,2\n".encode("cp1252"))
    drift = read_rates(tmp_path / "rates.csv", encoding="cp1252")
    assert drift.names == ("Zoë",) and drift.times.tolist() == [0.0, 5.0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1700000000.25", "1700000001.75"),
        ("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:48.1805900"),
        ("2023-11-16T18:15:46Z", "2023-11-16T18:15:47.5Z"),
        ("2023-11-16T23:59:59+01:00", "2023-11-16T23:00:00.5+00:00"),
    ],
)
def test_forms_of_time_with_fractions(tmp_path: Path, first: str, second: str) -> None:
    log = read_log(written(tmp_path, f"timestamp\n{first}\n{second}\n"))
    assert log.times[1] == pytest.approx(1.5, abs=1e-6)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("081109 20:35:18", "081110 20:35:20"),
        ("081109 203518", "081110 203520"),
        ("2008/11/09 20:35:18", "2008/11/10 20:35:20"),
        ("09/Nov/2008:20:35:18 +0200", "10/Nov/2008:20:35:20 +0200"),
    ],
)
def test_forms_of_time_of_server_logs(tmp_path: Path, first: str, second: str) -> None:
    assert read_log(written(tmp_path, f"time\n{first}\n{second}\n")).span == 86402.0


def test_units_of_time_sums_of_columns_filters_and_a_number_of_jobs(tmp_path: Path) -> None:
    path = written(tmp_path, "time,in,out,kind\n0,10,1,x\n500,10,2,y\n1000,20,3,x\n3000,0,4,x\n")
    log = read_log(path, size="0.1*in+out", time_unit="ms", where={"kind": "x"})
    np.testing.assert_allclose(log.times, [0, 1, 3])
    np.testing.assert_allclose(log.sizes, [2, 5, 4])
    assert log.left_out == {"without kind=x": 1} and log.unit == "(0.1*in+out)"
    assert len(read_log(path, size="out", jobs=2)) == 2


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("", {}, "log.csv: is empty; it needs a line of column names"),
        ("time\n", {}, "has no line after the column names"),
        ("1,2\n3,4\n", {}, "line 1: must name the columns"),
        ("time,time\n3,4\n", {}, "line 1: names the column 'time' twice"),
        (GOOD, {"time": "tim"}, "time: there is no column 'tim'; did you mean 'time'?"),
        (GOOD, {"size": "token"}, "size: there is no column 'token'; did you mean 'tokens'?"),
        (GOOD, {"size": "-2*tokens"}, "size: weights must be numbers of at least 0"),
        (GOOD, {"server": "whom"}, "server: there is no column 'whom'"),
        (GOOD, {"where": {"wh": "a"}}, "where: there is no column 'wh'"),
        (GOOD, {"where": {"who": "c"}}, "0 jobs are left to replay"),
        (GOOD, {"where": {"who": "b"}}, "1 job is left"),
        (GOOD, {"layout": "azure_llm"}, "layout azure_llm: there is no column 'TIMESTAMP'"),
        (GOOD, {"layout": "azure"}, "layout must be one of 'auto', 'csv', 'azure_llm', 'technion_bank'"),
        (GOOD, {"time_unit": "min"}, "time_unit must be one of"),
        (GOOD, {"jobs": 1}, "jobs must be a whole number of at least 2"),
        ("when,size\n1,2\n3,4\n", {}, "time: name the column of arrival times, one of when, size"),
        ("time\n5\n5\n", {}, "all 2 jobs come at the same time"),
        ("time\n5\n-6\n", {}, "line 3: column 'time' is -6, and times must be at least 0"),
        ("time\n5\n\n6\n5.5\n", {}, "line 5: column 'time' goes back in time, 0.5 s before line 4"),
        ("time\nsoon\n6\n", {}, "line 2: column 'time' has 'soon', which is no time"),
        ("time\n5\nsoon\n", {}, "line 3: column 'time' has 'soon', not a number"),
        ("time\n5\ninf\n", {}, "line 3: column 'time' has 'inf', not a finite number"),
        ("time\n2020-01-01\n7\n", {}, "line 3: column 'time' has '7', not a time of the form"),
        ("time\n2020-01-01\n2020-01-01T00:00:01Z\n", {}, "line 3: .*some times have a time zone and some have none"),
        (",time,\n1,2,3\n", {}, "line 1: names the column '' twice"),
        (
            "time,size\n1,2\n3\n",
            {},
            "line 3: has 1 value for 2 columns; the first without one is 'size'; drop_bad=True",
        ),
        ("time;size\n1;2\n3;0,5\n", {}, "line 3: column 'size' has '0,5', not a number; decimals need a point"),
        ("time,size\n1,2\n3,0\n", {}, "line 3: column 'size' is 0, and must be above 0"),
        ("time,size\n1,2\n3,nan\n", {}, "line 3: column 'size' has 'nan', not a finite number"),
        ("time,size\n1,2\n3,-1\n", {}, "line 3: column 'size' is -1, and must be above 0"),
        ("time,size\n1,2\n3,\n", {}, "line 3: column 'size' has '', not a number"),
        ("time,a,b\n1,2,1\n3,0,0\n", {"size": "a+b"}, "line 3: size 'a\\+b' is 0, and must be above 0"),
        ("time,duration\n1,2\n3,0\n", {}, "line 3: column 'duration' is 0"),
    ],
)
def test_a_bad_log_is_one_sentence(tmp_path: Path, text: str, options: dict, sentence: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=sentence) as refused:
        read_log(path, **options)
    assert "\n" not in str(refused.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"time\n\xff\xfe\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(GOOD.encode() * 100)[:60])
    for name, sentence in (
        ("a.csv", r"a\.csv: line 2: is not utf-8 text \(byte 0xff in column 'time'\)"),
        ("b.csv.gz", r"b\.csv\.gz: cannot be read \(Compressed file ended"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read_log(tmp_path / name)
    with pytest.raises(ValueError, match="is a folder, not a file"):
        read_log(tmp_path)
    with pytest.raises(ValueError, match=r"nowhere\.csv: cannot be read \(no such file\)"):
        read_log("nowhere.csv")


def test_bad_lines_are_dropped_and_counted_on_request(tmp_path: Path) -> None:
    path = written(tmp_path, "time,size\n1,2\n2,0\n3,nan\n4,0\n5\n4.5,1\nx,1\n")
    log = read_log(path, drop_bad=True)
    assert log.times.tolist() == [0.0, 3.5]
    assert log.dropped == {
        "lines with 'size' not above 0": 2,
        "lines without a finite number in 'size'": 1,
        "lines with a wrong number of values": 1,
        "lines without a number in 'time'": 1,
    }
    assert "dropped: 2 lines with 'size' not above 0" in log.describe()


def test_jobs_are_sorted_on_request_and_stay_together(tmp_path: Path) -> None:
    path = written(tmp_path, "time,size,server\n3,1,a\n1,2,b\n3,3,c\n")
    log = read_log(path, sort=True)
    assert log.times.tolist() == [0.0, 2.0, 2.0] and log.sizes.tolist() == [2.0, 1.0, 3.0]
    assert log.servers == ("b", "a", "c")


def test_a_file_is_looked_for_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    written(tmp_path / "deep", GOOD)
    monkeypatch.setenv("QUEUEWISE_DATA", str(tmp_path))
    assert len(read_log("deep/log.csv")) == 3
    with pytest.raises(ValueError, match="nor is it in QUEUEWISE_DATA"):
        read_log("deep/lag.csv")


# --- recorded data ---------------------------------------------------------------------------------------------------


def test_azure_traces_are_recognised() -> None:
    log = read_log(recorded("azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz"))
    assert len(log) == 19366 and log.unit == "tokens" and log.sizes[:3].tolist() == [44, 109, 55]
    assert log.times[1] == pytest.approx(4.314579, abs=2e-6)
    both = read_log(recorded("azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz"), size="0.01*context+generated")
    assert len(both) == 8819 and both.sizes[0] == pytest.approx(58.08)


def test_the_bank_is_recognised_and_its_unserved_calls_are_left_out() -> None:
    path = recorded("technion_bank/calls_august_1999.csv.gz")
    with pytest.raises(ValueError, match="line 351: column 'ser_time' is 0"):
        read_log(path)
    log = read_log(path, drop_bad=True)
    assert len(log) == 31402 - 125 and sum(log.left_out.values()) == 42078 - 31402
    assert (np.diff(log.times) >= 0).all() and 30 * 86400 < log.span < 31 * 86400
    assert log.servers is not None and len(set(log.servers) - {""}) == 31 and log.servers.count("") > 0
    assert log.durations is not None and log.unit == "s"
    with pytest.raises(ValueError, match="size: must be left out with the layout technion_bank"):
        read_log(path, size="ser_time")


def test_a_layout_can_be_overruled() -> None:
    path = recorded("technion_bank/calls_one_day.csv")
    log = read_log(path, layout="csv", time="vru_exit", sort=True, where={"outcome": "HANG"})
    assert len(log) > 100 and (log.sizes == 1.0).all()


# --- rates -----------------------------------------------------------------------------------------------------------


def test_rates_over_time(tmp_path: Path) -> None:
    path = written(tmp_path, "time,a,b\n100,1,4\n103,2,4\n104,3,5\n")
    drift = read_rates(path)
    assert drift.names == ("a", "b") and drift.times.tolist() == [0.0, 3.0, 4.0] and drift.span == 4.0
    np.testing.assert_allclose(drift.mean(), [5 / 4, 4.0])
    assert drift.schedule().rates == ((1.0, 4.0), (2.0, 4.0), (3.0, 5.0))
    assert read_rates(path, servers=["b"]).rates[:, 0].tolist() == [4.0, 4.0, 5.0]
    assert drift.stretched(8.0).times.tolist() == [0.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("time,a\n0,1\n1,0\n", "line 3: column 'a' is 0, and must be above 0"),
        ("time,a\n0,1\n0,2\n", "line 3: column 'time' must increase"),
        ("time,a\n0,1\n1\n", "line 3: has 1 value for 2 columns; the first without one is 'a'"),
        ("time,a\n0,fast\n", "line 2: column 'a' has 'fast', not a number"),
        ("time\n0\n", "needs one column of rates per server"),
        ("time,a\n", "has no line"),
    ],
)
def test_bad_rates_are_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_rates(written(tmp_path, text))


def test_unknown_servers_of_a_rates_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="servers: there is no column 'A'"):
        read_rates(written(tmp_path, "time,a\n0,1\n"), servers=["A"])


def test_measured_machines_become_drifting_rates() -> None:
    drift = read_rates(recorded("azure_vm_noise/pg2500_c1_ro_tps_long.csv.gz"))
    assert len(drift.names) == 12 and drift.rates.shape == (200, 12) and (drift.rates > 0).all()
    two = read_rates(
        recorded("azure_vm_noise/pg2500_c1_ro_tps_long.csv.gz"), servers=["eastus/B8ms/vm00", "eastus/D8s_v5/vm00"]
    )
    assert 1.2 < two.mean()[1] / two.mean()[0] < 1.5
