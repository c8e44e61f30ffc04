import logging
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from xmc_tf.common.errors import InputError
from xmc_tf.params.tfidf import AS_WRITTEN, AUTO
from xmc_tf.params.values import nearest

if TYPE_CHECKING:
    from xmc_tf.data import Texts

_LOG = logging.getLogger(__name__)

# The first and the last character of scripts that are written without spaces between words.
UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x30FF),  # iteration marks, Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han, compatibility
    (0x20000, 0x3FFFF),  # Han, extensions
)
# Languages that write compounds as one word.
WITH_COMPOUNDS = frozenset({"da", "de", "et", "fi", "hu", "is", "lb", "nb", "nl", "nn", "se", "sv"})
_SAMPLE = 400  # texts
_LONGEST = 1000  # characters of a text that are used
_LEAST_TEXT = 500  # characters of the whole sample: the language of less would be a guess
_LEAST_SHARE = 0.1  # of the texts in a language; wrong guesses for single short texts are common
_LEAST_SURE = 2 / 3  # of the texts in such languages; otherwise, no language is detected
_NO_LANGUAGE = "zxx"  # of numbers and the like
# Languages that share a dictionary with another, or have it under a more general name.
_DICTIONARY_OF = {"no": "nb", "hr": "hbs", "sr": "hbs", "bs": "hbs", "sh": "hbs", "nds": "de", "pcm": "en"}
# The codes of three letters in library catalogues (ISO 639-2, both forms).
_THREE_LETTERS = (
    "afr=af ara=ar arm=hy aze=az baq=eu bel=be ben=bn bos=bs bre=br bul=bg cat=ca ces=cs chi=zh cym=cy cze=cs dan=da "
    "deu=de dut=nl ell=el eng=en epo=eo est=et eus=eu fas=fa fin=fi fra=fr fre=fr geo=ka ger=de gla=gd gle=ga glg=gl "
    "glv=gv gre=el guj=gu heb=he hin=hi hrv=hr hun=hu hye=hy ice=is ind=id isl=is ita=it jav=jv jpn=ja kan=kn kat=ka "
    "kaz=kk kor=ko lat=la lav=lv lit=lt ltz=lb mac=mk mal=ml mar=mr may=ms mkd=mk mlt=mt msa=ms nld=nl nno=nn nob=nb "
    "nor=no per=fa pol=pl por=pt ron=ro rum=ro rus=ru slk=sk slo=sk slv=sl sme=se spa=es sqi=sq alb=sq srp=sr swa=sw "
    "swe=sv tam=ta tel=te tgl=tl tha=th tur=tr ukr=uk urd=ur vie=vi wel=cy zho=zh"
)
# Languages that can be detected but have no dictionary; their words can still be cut into pieces.
_OTHERS = (
    "ace af am an ary arz as az ba bcl be bn br bs crh dz eu ext fo fuv fy gcf gcr gom gu gug guw ha hbo ht ig ja jv "
    "kab kik kk km kn ko ku ky lg lij ln lo ltg mg mn mr mt my nan ne nso oc om or pa ps qu rn rw sa sdh si sn so st "
    "ta te tg th ti tk tt ug ur uz uzs vec vi vo wa wuu xh yo yue zh zu"
)
WITHOUT_DICTIONARY = frozenset(_OTHERS.split())
_SHORT_CODE = dict(pair.split("=") for pair in _THREE_LETTERS.split())


def languages_of(texts: "Texts") -> tuple[str, ...]:
    """Detect the languages of a sample of texts, most frequent first; return () if they are unclear."""
    sample = sample_of(texts, _SAMPLE)
    if sum(map(len, sample)) < _LEAST_TEXT:
        return ()
    from py3langid import classify  # it takes a second to load

    codes = [classify(text)[0] for text in sample if text.strip()]
    counts = Counter(dictionary_code(code) for code in codes if code != _NO_LANGUAGE)
    total = sum(counts.values())
    found = {code: count for code, count in counts.most_common() if count >= _LEAST_SHARE * total}
    return tuple(found) if sum(found.values()) >= _LEAST_SURE * total else ()


def sample_of(texts: "Texts", most: int) -> list[str]:
    """Return the beginnings of ``most`` texts, a random one of each stretch, because languages may alternate."""
    count = min(most, len(texts))
    random = Random(0)
    rows = [int((stretch + random.random()) * len(texts) / count) for stretch in range(count)]
    sample = []
    for text in (texts[row] for row in rows):
        if isinstance(text, bytes):
            sample.append(text[: 4 * _LONGEST].decode("utf-8", "replace")[:_LONGEST])
        elif isinstance(text, str):  # errors in texts are reported where they are read
            sample.append(text[:_LONGEST])
    return sample


def chosen_languages(setting: str, texts: "Texts") -> tuple[str, ...]:
    """Return the languages whose words are lemmatized. ``setting`` is "auto", "none", or codes separated by commas."""
    from xmc_tf.words.dictionaries import dictionary_languages

    if setting == AS_WRITTEN:
        return ()
    if setting != AUTO:
        codes, known = setting.split(","), _known_codes()
        if unknown := [code for code in codes if _base(code) not in known]:
            close, listed = nearest(unknown[0], known), ", ".join(sorted(dictionary_languages()))
            raise InputError(
                f"--language: unknown language code {unknown[0]!r}",
                expected=f"codes such as en, fi or fi,sv; with a dictionary: {listed}",
                received=unknown[0],
                fix=f"did you mean {close}?" if close else "use auto, or none to take words as they are written",
            )
        return tuple(dict.fromkeys(map(dictionary_code, codes)))
    found = languages_of(texts)
    if found:
        _LOG.info("language: %s, found in the texts (--language sets it)", " and ".join(found))
    else:
        _LOG.info("language: not clear from the texts; words are taken as written (--language sets it)")
    return found


def dictionary_code(code: str) -> str:
    """Return the code of the dictionary to use for a language."""
    base = _base(code)
    return _DICTIONARY_OF.get(base, base)


def known_code(code: str) -> str | None:
    """Return the dictionary code for a language code such as fi, FIN or en-GB, or None if the language is unknown."""
    code = code.strip().lower()
    return dictionary_code(code) if _base(code) in _known_codes() else None


def _base(code: str) -> str:
    """Return a language code without its variant (en for en-gb), and with two letters if possible."""
    base = code.replace("_", "-").partition("-")[0]
    return _SHORT_CODE.get(base, base)


def _known_codes() -> set[str]:
    from xmc_tf.words.dictionaries import dictionary_languages

    return {*dictionary_languages(), *WITHOUT_DICTIONARY, *_DICTIONARY_OF}
