"""Recorded outcomes: what is read, that the order of lines carries no meaning, and what is said of files that are wrong."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuewise as qw
from queuewise.scheduling import read_outcomes
from queuewise.scheduling.recorded import RecordedOutcomes, recorded_law
from queuewise.scheduling.systems import System

DATA = Path(os.environ.get("QUEUEWISE_DATA") or Path(__file__).parents[3] / "shared" / "data")

LINES = [
    "name,topic,size,day,fast,slow",
    "a,law,1,2026-01-01,0.1,1",
    "b,law,2,2026-01-02,0.5,0.9",
    "c,maths,3,2026-01-05,1,0.2",
    "d,maths,4,2026-01-09,0.7,0.3",
    "e,art,5,2026-01-09,0,0.6",
    "f,law,9,2026-01-11,0.4,0.4",
]
KEYS: dict[str, Any] = {"id": "name", "features": ["topic", "size", "day"], "least_count": 1}


def data(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in QUEUEWISE_DATA")
    return path


def written(folder: Path, lines: list[str], name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def same(a: RecordedOutcomes, b: RecordedOutcomes) -> None:
    assert (a.job_ids, a.server_names, a.feature_names) == (b.job_ids, b.server_names, b.feature_names)
    assert a.features.tobytes() == b.features.tobytes() and a.outcomes.tobytes() == b.outcomes.tobytes()


def constants(system: System) -> dict[str, float]:
    found = {key: quantity.value for key, quantity in system.constants._asdict().items()}
    return found | {"slack": system.slack(), "context_slack": system.context_slack().value, "rate": system.arrival_rate}


# --- what is read ----------------------------------------------------------------------------------------------------


def test_texts_numbers_and_dates_become_features(tmp_path: Path) -> None:
    found = read_outcomes(written(tmp_path, LINES), **KEYS)
    assert found.server_names == ("fast", "slow") and found.job_ids == tuple("abcdef")
    # The first level of the alphabet, art, is the one without an indicator.
    assert found.feature_names == ("topic=law", "topic=maths", "size", "day")
    np.testing.assert_array_equal(found.features[:, 0], [1, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(found.features[:, 1], [0, 0, 1, 1, 0, 0])
    size = np.array([1, 2, 3, 4, 5, 9.0])
    np.testing.assert_allclose(found.features[:, 2], (size - size.mean()) / size.std(), atol=1e-6)
    days = np.array([1, 2, 5, 9, 9, 11.0])
    np.testing.assert_allclose(found.features[:, 3], (days - days.mean()) / days.std(), atol=1e-6)
    np.testing.assert_array_equal(found.outcomes[:, 0], [0.1, 0.5, 1, 0.7, 0, 0.4])


def test_the_system_says_its_servers_and_counts(tmp_path: Path) -> None:
    system = read_outcomes(written(tmp_path, LINES), **KEYS).system(load=0.6)
    assert system.server_names == ("fast", "slow") and system.dimension == 2 * 5
    assert system.slack() == pytest.approx(0.4)
    assert "fast 0.450; slow 0.567" in system.describe()
    result = qw.scheduling.simulate(system, ["random"], rounds=20, runs=2)
    assert result.queue_length["random"].shape == (2, 20)


def test_single_results_truth_words_percentages_and_patterns(tmp_path: Path) -> None:
    path = written(tmp_path, ["gpt-a,gpt-b,other", "true,FALSE,1", "false,True,0", "1,0,1"])
    found = read_outcomes(path, outcomes="gpt-?")
    np.testing.assert_array_equal(found.outcomes.sum(axis=0), [2, 1])
    percent = read_outcomes(written(tmp_path, ["x,y", "50,100", "25,0"]), out_of=100)
    np.testing.assert_array_equal(np.sort(percent.outcomes, axis=0), [[0.25, 0], [0.5, 1]])


def test_gzip_semicolons_and_other_encodings(tmp_path: Path) -> None:
    plain = read_outcomes(written(tmp_path, LINES), **KEYS)
    zipped = tmp_path / "jobs.csv.gz"
    zipped.write_bytes(gzip.compress("\r\n".join(LINES).replace(",", ";").encode("utf-8-sig")))
    same(read_outcomes(zipped, **KEYS), plain)
    lines = [line.replace("maths", "größe") for line in LINES]
    (tmp_path / "latin.csv").write_bytes("\n".join(lines).encode("latin-1"))
    found = read_outcomes(tmp_path / "latin.csv", **KEYS, encoding="latin-1")
    assert found.feature_names[:2] == ("topic=größe", "topic=law")


def test_rare_levels_are_pooled_and_constant_features_left_out(tmp_path: Path) -> None:
    texts = ["law"] * 6 + ["art"] * 5 + ["music", "dance", "chess"]
    lines = ["topic,one,x", *(f"{text},7,0.5" for text in texts)]
    found = read_outcomes(written(tmp_path, lines), features=["topic", "one"])
    assert found.feature_names == ("topic=law", "topic=(other)")
    assert found.features.sum(axis=0).tolist() == [6, 3]
    assert any("3 levels of fewer than 5 jobs pooled" in note for note in found.notes)
    assert any("the same for all jobs: one" in note for note in found.notes)
    assert "pooled" in found.system(load=0.5).describe()


def test_numbers_are_texts_on_request(tmp_path: Path) -> None:
    lines = ["kind,x", "1,0.5", "2,0.5", "10,0.5", "2,1"]
    found = read_outcomes(written(tmp_path, lines), features="kind", categories=["kind"], least_count=1)
    assert found.feature_names == ("kind=10", "kind=2")


def test_principal_components_are_those_of_a_singular_value_decomposition(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(40, 4)) @ rng.normal(size=(4, 4))
    lines = ["id,a,b,c,d,x", *(f"{i:02d}," + ",".join(map(repr, row.tolist())) + ",0.5" for i, row in enumerate(table))]
    found = read_outcomes(written(tmp_path, lines), id="id", features=list("abcd"), components=2)
    standard = (table - table.mean(0)) / table.std(0)
    u, s, v = np.linalg.svd(standard, full_matrices=False)
    scores = u[:, :2] * s[:2] * np.sign(v[np.arange(2), np.abs(v[:2]).argmax(axis=1)])
    scores /= np.sqrt((scores**2).sum() / len(scores))
    np.testing.assert_allclose(found.features, scores, atol=1e-4)
    assert (found.features**2).sum(axis=1).mean() == pytest.approx(1, abs=1e-4)


def test_a_second_file_is_joined_by_a_column_or_line_by_line(tmp_path: Path) -> None:
    main = written(tmp_path, ["q,x,y", "a,1,0", "b,0,1", "c,1,0.5"])
    other = written(tmp_path, ["q,level", "c,3", "a,1", "b,2", "z,9", "a,1"], "levels.csv")
    found = read_outcomes(main, id="q", features="level", feature_file=other, standardise=False)
    assert found.features.ravel().tolist() == [1, 2, 3] and found.server_names == ("x", "y")
    np.savez(tmp_path / "by_id.npz", q=np.array(["b", "c", "a"]), X=np.array([[2, 0], [3, 0], [1, 0.0]]))
    joined = read_outcomes(main, id="q", features="X*", feature_file=tmp_path / "by_id.npz", standardise=False)
    assert joined.feature_names == ("X1", "X2") and joined.features[:, 0].tolist() == [1, 2, 3]
    np.savez(tmp_path / "rows.npz", X=np.array([[5], [6], [7]]))
    rows = read_outcomes(main, id="q", join=[], features="X1", feature_file=tmp_path / "rows.npz", standardise=False)
    assert rows.features.ravel().tolist() == [5, 6, 7]


def test_features_of_pairs_share_one_parameter(tmp_path: Path) -> None:
    lines = ["price:x,price:y,delay:x,delay:y,x,y", "1,2,3,4,0.5,0.25", "5,6,7,8,1,0"]
    found = read_outcomes(written(tmp_path, lines), pair_features=["price", "delay"])
    assert found.server_names == ("x", "y") and found.of_pairs
    system = found.system(load=0.5)
    assert system.dimension == 2
    assert sorted(system.law.features[:, :, 1].tolist()) == [[2, 4], [6, 8]]  # type: ignore[attr-defined]


# --- the order of lines ----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans(), st.sampled_from([None, 2]), st.sampled_from([None, 9]))
def test_shuffled_lines_are_the_same_law(
    tmp_path_factory: pytest.TempPathFactory, random: Any, with_id: bool, components: int | None, jobs: int | None
) -> None:
    rng = np.random.default_rng(11)
    topics = ["law", "art", "maths"]
    lines = [
        f"j{i},{topics[rng.integers(3)]},{rng.integers(3)},{rng.normal()!r},{rng.integers(1, 11) / 10},{rng.random()!r}"
        for i in range(14)
    ]
    # Without ids equal lines are equal jobs, and each counts.
    lines += [f"twin{i},law,1,0.5,0.5,0.5" for i in range(3)]
    shuffled = list(lines)
    random.shuffle(shuffled)
    header = "name,topic,small,real,one,two"
    keys: dict[str, Any] = {"features": ["topic", "small", "real"], "exclude": "name", "components": components}
    keys |= {"jobs": jobs, "least_count": 1} | ({"id": "name"} if with_id else {})
    folder = tmp_path_factory.mktemp("jobs")
    found = [
        read_outcomes(written(folder, [header, *order], name), **keys)
        for name, order in (("a.csv", lines), ("b.csv", shuffled), ("c.csv", sorted(lines)))
    ]
    systems = [one.system(load=0.8, name="jobs") for one in found]
    for one, system in zip(found[1:], systems[1:], strict=True):
        same(found[0], one)
        assert system.settings() == systems[0].settings()
        assert constants(system) == constants(systems[0])


def test_other_jobs_are_another_law(tmp_path: Path) -> None:
    first = read_outcomes(written(tmp_path, LINES), **KEYS).system(load=0.5)
    second = read_outcomes(written(tmp_path, [LINES[0], "a,law,1,2026-01-01,0.2,1", *LINES[2:]]), **KEYS).system(
        load=0.5
    )
    assert first.settings() != second.settings()


def test_a_sample_depends_on_its_seed_and_grows_by_jobs(tmp_path: Path) -> None:
    path = written(tmp_path, ["id,x", *(f"q{i},{1 if i % 2 else 0.5}" for i in range(200))])
    twenty, fifty, other = (
        read_outcomes(path, id="id", jobs=jobs, seed=seed) for jobs, seed in ((20, 0), (50, 0), (20, 1))
    )
    assert set(twenty.job_ids) < set(fifty.job_ids) and set(other.job_ids) != set(twenty.job_ids)
    # Not the first ones of the file: a sorted file would else give one kind of job.
    numbers = np.array([int(name[1:]) for name in fifty.job_ids])
    assert 60 < numbers.mean() < 140


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_what_is_written_reads_back_to_the_same_bits(tmp_path: Path, suffix: str) -> None:
    found = read_outcomes(written(tmp_path, LINES), **KEYS)
    path = found.write(tmp_path / "deeper" / f"again{suffix}")
    again = read_outcomes(path, **found.reading())
    same(found, again)
    assert again.system(load=0.7, name="x").settings() == found.system(load=0.7, name="x").settings()
    content = path.read_bytes()
    assert found.write(path).read_bytes() == content


@pytest.mark.parametrize(
    "system",
    [
        qw.scheduling.uniform_law(seed=2),
        qw.scheduling.table_law(
            [[[1.0, 0.1], [0.3, 1.0]], [[0.25, 1.0], [1 / 3, 0.7]]],
            theta=[0.9, -0.4],
            arrival_rate=0.3,
            weights=[0.1, 0.7],
        ),
    ],
    ids=["uniform_law", "table_law"],
)
def test_a_synthetic_law_reads_back_with_the_same_constants(tmp_path: Path, system: System) -> None:
    law = recorded_law(system)
    path = law.write(tmp_path / "law.csv")
    again = read_outcomes(path, **law.reading()).system(
        arrival_rate=system.arrival_rate, parameter_bound=system.parameter_bound
    )
    table, original = again.law, system.law
    assert table.features.tobytes() == original.features.tobytes()  # type: ignore[attr-defined]
    assert table.probabilities.tobytes() == original.probabilities.tobytes()  # type: ignore[attr-defined]
    # Weights are divided by their sum once more, which may move the last bit.
    assert constants(again) == constants(system)
    assert again.kappa("ball") == system.kappa("ball") and again.kappa("truth") == system.kappa("truth")


def test_a_law_without_a_table_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="must have a finite table of contexts"):
        recorded_law(qw.scheduling.wise_figure_law(q=0.15, slack=0.1))


# --- what is wrong ---------------------------------------------------------------------------------------------------


def broken(place: int, text: str) -> list[str]:
    return [text if i == place else line for i, line in enumerate(LINES)]


@pytest.mark.parametrize(
    ("lines", "keys", "sentence"),
    [
        (broken(2, "b,law,2,2026-01-02,,0.9"), {}, r"line 3: column 'fast' is empty; missing='drop'"),
        (broken(2, "b,law, ,2026-01-02,0.5,0.9"), {}, r"line 3: column 'size' is empty"),
        (broken(2, ",law,2,2026-01-02,0.5,0.9"), {}, r"line 3: column 'name' is empty"),
        (broken(2, "b,law,2,2026-01-02,good,0.9"), {}, r"line 3: column 'fast' has 'good', not a number$"),
        (broken(2, 'b,law,2,2026-01-02,"0,5",0.9'), {}, r"line 3: .* not a number; decimals need a point"),
        (broken(2, "b,law,2,2026-01-02,nan,0.9"), {}, r"line 3: column 'fast' has 'nan', not a finite number"),
        (
            broken(2, "b,law,2,2026-01-02,-0.1,0.9"),
            {},
            r"line 3: column 'fast' is -0.1, and a score must lie in \[0, 1\]",
        ),
        (broken(2, "b,law,2,2026-01-02,50,0.9"), {}, r"line 3: .* must lie in \[0, 1\]; out_of=100 reads percentages"),
        (broken(2, "b,law,2,2026-01-02,50,0.9"), {"out_of": 10}, r"line 3: .* must lie in \[0, 10\]$"),
        (broken(2, "a,law,2,2026-01-02,0.5,0.9"), {}, r"line 3: column 'name' has 'a', which line 2 has already"),
        (
            broken(2, "b,law,2,2026-01-02,0.5"),
            {},
            r"line 3: has 5 values for 6 columns; the first without one is 'slow'",
        ),
        (broken(2, "b,law,2,2026-01-02,0.5,0.9,1"), {}, r"line 3: has 7 values for 6 columns$"),
        (
            broken(2, "b,law,two,2026-01-02,0.5,0.9"),
            {},
            r"line 3: column 'size' has 'two', not a finite number as 5 of 6",
        ),
        (
            broken(2, "b,law,2,2026-13-02,0.5,0.9"),
            {},
            r"line 3: column 'day' has '2026-13-02', not a finite date as 5 of 6",
        ),
        (broken(3, 'c,"ma\nths",3,2026-01-05,bad,0.2'), {}, r"line 4: column 'fast' has 'bad'"),
        (broken(4, 'c,"ma"ths",3,2026-01-05,1,0.2'), {}, r"line 5: is not CSV text"),
        (broken(0, "name,topic,size,,fast,slow"), {}, r"line 1: column 4 of 6 has no name"),
        (broken(0, "name,topic,size,day,fast,fast"), {}, r"line 1: names the column 'fast' twice"),
        (broken(0, "name,topic,siez,day,fast,slow"), {}, r"features: there is no column 'size'; did you mean 'siez'"),
        (["1,2,3", "4,5,6"], {"id": None, "features": ()}, r"line 1: must name the columns, but it holds only numbers"),
        ([""], {}, r"is empty"),
        (LINES[:1], {}, r"has no line after the column names"),
        (LINES, {"outcomes": "fst"}, r"outcomes: there is no column 'fst'; did you mean 'fast'"),
        (
            LINES,
            {"outcomes": ["fast", "size"]},
            r"outcomes: column 'size' cannot be a server and be used as something else",
        ),
        (LINES, {"exclude": ["fast", "slow"]}, r"outcomes: no column is left for servers"),
        (LINES, {"id": "nom"}, r"id: there is no column 'nom'; did you mean 'name'"),
        (LINES, {"weight": "wt"}, r"weight: there is no column 'wt'"),
        (LINES, {"categories": "kind"}, r"categories: there is no column 'kind'"),
        (
            LINES,
            {"features": ["topic"]},
            r"line 2: column 'size' is 1|line 2: column 'day' has '2026-01-01', not a number",
        ),
        (
            ["n,x,y", "a,1,0", "b,0.5,0"],
            {"id": "n", "features": ()},
            r"column 'y' has no success in 2 jobs; without_success",
        ),
        (
            ["n,x,w", "a,1,-1"],
            {"id": "n", "features": (), "weight": "w"},
            r"line 2: column 'w' is -1, and a weight must be",
        ),
        (
            ["x;y", "1,5;0"],
            {"id": None, "features": ()},
            r"line 2: column 'x' has '1,5', not a number; decimals need a point",
        ),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence_with_its_place(
    tmp_path: Path, lines: list[str], keys: dict[str, Any], sentence: str
) -> None:
    path = written(tmp_path, lines)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_outcomes(path, **{**KEYS, **keys})
    assert str(caught.value).startswith(str(path)) or "categories" in keys
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("\n".join(LINES).replace("art", "größe").encode("latin-1"), r"line 6: .*byte 0xf6 in column 'topic'"),
        ("\n".join(LINES).replace("name", "größe").encode("cp1252"), r"line 1: is not utf-8 text \(byte 0xf6\)"),
        ("\n".join(LINES).encode("utf-16"), r"line 1: is UTF-16 text, not utf-8; say encoding='utf-16'"),
        ("\n".join(LINES).encode("utf-16-le"), r"line 1: holds a NUL character"),
        (gzip.compress("\n".join(LINES).encode(), mtime=0)[:40], r"cannot be read"),
        (b"\x1f\x8b nothing", r"cannot be read"),
    ],
)
def test_a_file_that_is_no_text_says_where(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_outcomes(path, **KEYS)
    assert "\n" not in str(caught.value)


def test_whatever_is_done_to_a_file_it_is_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    whole = bytearray("\n".join(LINES).encode())
    path = tmp_path / "jobs.csv"
    read = refused = 0
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(content)))
            content[at : at + int(rng.integers(3))] = bytes(
                rng.choice(list(b'",;\n\r\0\xe9 -.1x'), int(rng.integers(3))).tolist()
            )
        path.write_bytes(content)
        try:
            found = read_outcomes(path, **KEYS)
        except ValueError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)
            refused += 1
        else:
            assert np.isfinite(found.features).all() and 0 <= found.outcomes.min() <= found.outcomes.max() <= 1
            read += 1
    assert read > 20 and refused > 100


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"encoding": "utf-99"}, "encoding: there is none called 'utf-99'"),
        ({"missing": "zero"}, "missing must be one of"),
        ({"without_success": "x"}, "without_success must be one of"),
        ({"out_of": 0}, "out_of must be positive"),
        ({"jobs": 0}, "jobs must be a whole number"),
        ({"components": 9}, "components must be at most 4"),
        ({"features": 3}, "features must be a column or a list of columns"),
        ({"pair_features": "price"}, "pair_features must be left out with features"),
        ({"features": (), "pair_features": "price"}, "pair_features: there is no column 'price:topic'"),
    ],
)
def test_an_argument_that_is_wrong_is_named(tmp_path: Path, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_outcomes(written(tmp_path, LINES), **{**KEYS, **keys})


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    main = written(tmp_path, ["q,x", "a,1", "b,0"])
    keys: dict[str, Any] = {"id": "q", "features": "level"}
    for lines, sentence in (
        (["q,level", "a,1"], r"jobs.csv: line 3: column 'q' has 'b', which .*levels.csv does not have"),
        (["q,level", "a,1", "b,2", "a,3"], r"levels.csv: line 4: column 'level' has '3' for 'a', and line 2 has '1'"),
        (["q,level", "a,", "b,2"], r"levels.csv: line 2: column 'level' is empty"),
        (["p,level", "a,1", "b,2"], r"levels.csv: join: there is no column 'q'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read_outcomes(main, feature_file=written(tmp_path, lines, "levels.csv"), **keys)
    for arrays, sentence in (
        ({"X": np.ones((3, 2))}, r"rows.npz: has 3 lines for the 2 jobs"),
        ({"X": np.ones((2, 2)), "Y": np.ones((2, 2))}, r"must hold one array of numbers"),
        ({"X": np.array([[1.0], [np.nan]])}, r"line 2: column 'X1' has nan"),
    ):
        np.savez(tmp_path / "rows.npz", **arrays)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=sentence):
            read_outcomes(main, id="q", join=[], features="X*", feature_file=tmp_path / "rows.npz")
    (tmp_path / "rows.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"rows.npz: cannot be read as arrays"):
        read_outcomes(main, id="q", features="X*", feature_file=tmp_path / "rows.npz")


def test_what_is_left_out_on_request_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path, ["n,x,y", "a,1,0", "b,,0", "b,0.5,0"])
    found = read_outcomes(path, id="n", missing="drop", without_success="drop")
    assert found.job_ids == ("a", "b") and found.server_names == ("x",)
    assert "1 of 3 lines left out" in found.notes[0] and "without any success: y" in found.notes[1]
    kept = read_outcomes(path, id="n", missing="drop", without_success="keep")
    assert kept.server_names == ("x", "y")


def test_a_file_is_found_by_name_where_the_data_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, LINES)
    monkeypatch.setenv("QUEUEWISE_DATA", str(tmp_path))
    assert len(read_outcomes("jobs.csv", **KEYS).job_ids) == 6
    with pytest.raises(ValueError, match=r"cannot be read .* nor is it in QUEUEWISE_DATA"):
        read_outcomes("none.csv", **KEYS)


def test_the_record_brings_features_and_outcomes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shared must be left out"):
        read_outcomes(written(tmp_path, LINES), **KEYS).system(load=0.5, shared=True)


# --- recorded data ---------------------------------------------------------------------------------------------------


def test_published_fractions_with_gaps_are_refused_or_counted() -> None:
    path = data("livecodebench/lcb_testgen_pass1.csv.gz")
    keys: dict[str, Any] = {"id": "question_id", "features": ["difficulty", "date"]}
    with pytest.raises(ValueError, match=r"line \d+: column 'Claude-2' is empty"):
        read_outcomes(path, **keys)
    found = read_outcomes(path, **keys, missing="drop")
    assert found.outcomes.shape == (177, 37) and "10 of 187 lines left out" in found.notes[0]
    # Difficulty comes from another file, by the question: several samples share one.
    joined = read_outcomes(
        data("livecodebench/lcb_execution_pass1.csv.gz"),
        id=["question_id", "sample_id"],
        features=["difficulty", "date"],
        feature_file=path,
        join="question_id",
        exclude="*n=1*",
        outcomes=["*GPT*", "Dracarys*"],
        missing="drop",
    )
    assert "difficulty=medium" in joined.feature_names and len(joined.job_ids) == 460


def test_published_features_in_arrays_are_joined_by_id() -> None:
    path = data("llmrouter/llmrouter_scores.csv.gz")
    found = read_outcomes(
        path,
        id="qid",
        features=["task_name", "X*"],
        feature_file=data("llmrouter/llmrouter_features32.npz"),
        exclude="split",
        jobs=400,
        components=6,
    )
    assert found.outcomes.shape == (400, 9) and found.features.shape == (400, 6)
    system = found.system(load=0.5, impossible="drop")
    assert system.best_single_server()[1] < system.matched_success()


def test_a_number_too_large_to_be_standardised_is_named(tmp_path: Path) -> None:
    lines = [line.replace(",4,", ",1e200,") for line in LINES]
    with pytest.raises(ValueError, match=r"jobs.csv: line 5: column 'size' has '1e200', too large to be standardised"):
        read_outcomes(written(tmp_path, lines), outcomes=["fast", "slow"], **KEYS)
