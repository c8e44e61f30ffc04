"""The command that makes the pictures: its choices, and what it asks the browser for."""

from tools import screenshots


def test_pictures_are_where_the_pages_show_them():
    for name, picture in screenshots.PICTURES.items():
        assert picture.is_file()
        pages = [screenshots.ROOT / "README.md", *(screenshots.ROOT / "docs").rglob("*.md")]
        assert any(f"{name}.png)" in page.read_text(encoding="utf-8") for page in pages)
