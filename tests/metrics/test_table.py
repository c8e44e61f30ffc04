from xmc_tf.metrics import format_table, percent


def test_columns_are_aligned():
    text = format_table(["system", "P@1"], [["a", "5.00"], ["longer name", "42.91"]])
    assert text.splitlines() == [
        "system         P@1",
        "-----------  -----",
        "a             5.00",
        "longer name  42.91",
    ]


def test_a_wide_table_is_folded_and_repeats_its_names():
    text = format_table(["s", *"abcdef"], [["x", *(["12.34"] * 6)]], width=24)
    assert all(len(line) <= 24 for line in text.splitlines())
    assert text.count("12.34") == 6
    assert text.count("x") == 2


def test_a_missing_figure_is_a_dash():
    assert percent(float("nan")) == "–"
    assert percent(0.42914) == "42.91"
