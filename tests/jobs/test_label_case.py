"""Labels that differ by upper and lower case alone are named, since each has only a part of its documents."""

from xmc_tf.jobs.linear import warn_of_case


def test_labels_that_differ_by_case_alone_are_counted(caplog):
    warn_of_case(["Historia", "musiikki", "historia", "HISTORIA", "straße", "STRASSE"])
    assert "(3 of 6, such as" in caplog.text
    assert "'Historia' and 'historia'" in caplog.text
