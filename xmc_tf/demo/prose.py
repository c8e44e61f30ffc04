import inspect
import re

_SECTIONS = (
    "args|arguments|parameters|params|keyword args|keyword arguments|other parameters|call arguments|"
    "returns?|yields?|raises|references?|see also|examples?|usage|notes?|attributes|methods|warnings?|"
    "inputs?|outputs?|input shape|output shape|reference implementation|side effects|todo|functions|classes|"
    "routine listings"
)
_HEADING = re.compile(rf"(?:#+\s*)?(?:\*\*)?(?:{_SECTIONS})(?:\*\*)?\s*(?:\(.*\))?:{{0,2}}", re.IGNORECASE)
# "Example: x = 1" and "Returns: the sum" on one line.
_OPEN_SECTION = re.compile(r"(?:args|arguments|parameters|returns|yields|raises|examples?|usage|references?):\s")
_FIELD = re.compile(r"[:@](?:param|type|returns?|rtype|raises?|keyword|arg|class|parameter)\b")
_RULER = re.compile(r"[=+|-][=+| -]*")
_UNDERLINE = re.compile(r"([-=~^*#])\1{2,}")
_FENCE = re.compile(r"```|~~~")
_LISTED = re.compile(r"^(?:[-*+•]|\d+[.)])\s+")

# :func:`name <target>` and :class:`~a.b.C` keep the part that readers see.
_ROLE = re.compile(r":[a-z:]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`")
_FORMULA = re.compile(r":math:`[^`]*`|\$\$.+?\$\$|\$[^$\n]{1,200}\$|\\\\?\(.+?\\\\?\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ADDRESS = re.compile(r"(?:https?|ftp)://\S+|\bwww\.\S+")
_PLACEHOLDER = re.compile(r"%\(\w+\)s|\{\{?\w*\}?\}|\$\{\w+\}")
_CITATION = re.compile(r"\[\d+\]_?|\[[A-Z][A-Za-z+]*\d{2,4}\]_?")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])")
_SPACE = re.compile(r"\s+")


def prose(docstring: str, hidden: tuple[str, ...] = (), packages: tuple[str, ...] = ()) -> str:
    """Return a docstring's summary and description as one line, without code, sections, formulas and addresses.

    What would reveal the labels is left out too: ``hidden`` names that are written as code, and all but the last part
    of dotted names that begin with one of ``packages``.
    """
    text = _SPACE.sub(" ", " ".join(_lines(inspect.cleandoc(docstring)))).strip()
    text = _FORMULA.sub(" ", text)
    text = _LINK.sub(r"\1", text)
    text = _ADDRESS.sub(" ", text)
    text = _ROLE.sub(r"`\1`", text)
    text = _PLACEHOLDER.sub(" ", text)
    text = _CITATION.sub(" ", text)
    text = _without_names(text, hidden, packages)
    text = _EMPHASIS.sub(r"\2", text).replace("`", "").replace("\\", "")
    text = re.sub(r"::(?=\s|$)", ":", text)
    text = re.sub(r"\s+([.,;:)])(?!\w)", r"\1", _SPACE.sub(" ", text))
    return text.strip()


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation and digits, which copies of a text share."""
    return re.findall(r"[a-z]+", text.lower())


def _lines(text: str) -> list[str]:
    """Return the lines before the first section, without code."""
    lines = text.splitlines()
    kept: list[str] = []
    fenced = code = False
    before = ""
    for number, line in enumerate(lines):
        bare = line.strip()
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if _FENCE.match(bare):
            fenced = not fenced
        elif not fenced:
            if _FIELD.match(bare) or (kept and _begins_section(bare, following)):
                break
            # A directive and a doctest continue to the next empty line; an indented paragraph is code.
            if not before:
                code = bare.startswith("..") or (line.startswith("   ") and not _LISTED.match(bare))
            code = code or bare.startswith(">>>")
            if bare and not (code or _UNDERLINE.fullmatch(bare) or _RULER.fullmatch(bare)):
                kept.append(_LISTED.sub("", bare))
        before = bare
    return kept


def _begins_section(line: str, following: str) -> bool:
    if _UNDERLINE.fullmatch(following) and line:
        return True
    if _HEADING.fullmatch(line):
        return line.endswith((":", "*")) or line.startswith("#") or not following
    return bool(_OPEN_SECTION.match(line.lower()))


def _without_names(text: str, hidden: tuple[str, ...], packages: tuple[str, ...]) -> str:
    if packages:
        first = "|".join(map(re.escape, packages))
        text = re.sub(rf"\b(?:{first})(?:\.\w+)*\.(\w+)", r"\1", text)
    for name in hidden:
        if name not in text:
            continue
        plain = re.escape(name)
        if name.isalpha() and name in (name.lower(), name.capitalize()):
            # An ordinary word is removed where it is code, and kept where the text uses it as a word.
            text = re.sub(rf"`+{plain}(?:\([^`]*\))?`+|\b{plain}\([^()]*\)|\.{plain}\b", " ", text)
        else:
            text = re.sub(rf"`*\b{plain}\b(?:\([^()]*\))?`*", " ", text)
    return text
