"""What PECOS's tests ask of linear models holds of ours too."""

import pytest

from tests.interop.pecos_xlinear_behaviour import BEHAVIOURS


@pytest.mark.parametrize("check", [pytest.param(check, id=check.__name__) for _, _, check in BEHAVIOURS])
def test_behaviour(check, tmp_path):
    check(tmp_path)
