#!/usr/bin/env python3
"""Fails if two files under src/ define a type of the same qualified name: an ODR violation that no compiler reports.

  check_types.py [SRC]

Types are structs, classes, unions, enums, `using X =` and typedefs at namespace or class scope. Forward declarations, types
in anonymous namespaces, types local to a function and specializations with different arguments do not count, nor do
aliases with equal text. CUDA sources (.cu) are not read: each is a program of its own and never linked with another.
"""
import collections
import pathlib
import re
import sys

SUFFIXES = {".h", ".cc"}
# Folders of variants: a translation unit includes exactly one of their headers.
VARIANTS = ("backend/cpu/isa/", "backend/simt/format/", "backend/simt/kv_format/")
BLANKED = re.compile(r"""
    //(?:[^\n\\]|\\.|\\\n)*                       # line comment
  | /\*.*?\*/                                     # block comment
  | R"([^(\s]*)\(.*?\)\1"                         # raw string
  | "(?:[^"\\\n]|\\.)*"                           # string
  | (?<![0-9A-Za-z_])'(?:[^'\\\n]|\\.)+'          # character; a digit separator is not one
  | ^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*                # preprocessor line
""", re.VERBOSE | re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|[{}();=<>,:\[\]]|\S")
TYPE_KEYWORDS = {"struct", "class", "union", "enum"}


def tokens_of(text):
    """Yields (token, line number) of a file without comments, literals and preprocessor lines."""
    text = BLANKED.sub(lambda match: "\n" * match[0].count("\n") or " ", text)
    for number, line in enumerate(text.split("\n"), 1):
        for match in TOKEN.finditer(line):
            yield match[0], number


def without_attributes(head):
    """The tokens of a declaration without [[attributes]], alignas(...) and a leading template<...>."""
    out, i = [], 0
    while i < len(head):
        if head[i] == "[" and head[i + 1:i + 2] == ["["]:
            while i < len(head) and not (head[i] == "]" and head[i + 1:i + 2] == ["]"]):
                i += 1
            i += 2
        elif head[i] in ("alignas", "__attribute__", "__align__"):
            i, depth = i + 1, 0
            while i < len(head):
                depth += (head[i] == "(") - (head[i] == ")")
                i += 1
                if depth == 0:
                    break
        elif head[i] == "template" and head[i + 1:i + 2] == ["<"]:
            i, depth = i + 1, 0
            while i < len(head):
                depth += (head[i] == "<") - (head[i] == ">")
                i += 1
                if depth == 0:
                    break
        else:
            out.append(head[i])
            i += 1
    return out


def type_of_body(head):
    """The name of the type whose body follows these tokens: "" for an unnamed one, None if no type's body follows."""
    head = without_attributes(head)
    if not head or "(" in head or "=" in head:
        return None
    if head[0] in ("typedef", "static", "constexpr", "inline", "const", "extern"):
        head = [token for token in head if token not in ("typedef", "static", "constexpr", "inline", "const", "extern")]
    if not head or head[0] not in TYPE_KEYWORDS:
        return None
    rest = head[1:]
    if rest and rest[0] in ("class", "struct"):  # enum class
        rest = rest[1:]
    name, depth = "", 0
    for token in rest:
        if depth == 0 and (token == ":" or token == "final"):
            break
        depth += (token == "<") - (token == ">")
        name += token
    return name


def definitions(text):
    """Yields (qualified name, line, alias text or None) of every type that this file defines where others could too."""
    stack = []  # per open brace: a scope's name; None where types are local (function bodies, initializers, anonymous)
    head, head_line, depth = [], 0, 0
    for token, line in tokens_of(text):
        if token == "{" and depth == 0:
            if head and head[0] == "inline" and "namespace" in head:
                head = head[1:]
            if head[:1] == ["namespace"]:
                stack.append("".join(head[1:]) or None)
            elif head[:2] == ["extern", ""] or head == ["extern"]:  # extern "C": its string is gone
                stack.append("")
            else:
                name = type_of_body(head)
                if name and None not in stack:
                    yield "::".join([scope for scope in stack if scope] + [name]), head_line, None
                stack.append(name or None)
            head = []
        elif token == "}" and depth == 0:
            if stack:
                stack.pop()
            head = []
        elif token == ";" and depth == 0:
            if head[:1] == ["using"] and head[2:3] == ["="] and None not in stack:
                yield "::".join([scope for scope in stack if scope] + [head[1]]), head_line, " ".join(head[3:])
            elif head[:1] == ["typedef"] and None not in stack:
                yield "::".join([scope for scope in stack if scope] + [head[-1]]), head_line, " ".join(head[1:-1])
            head = []
        elif token == ":" and head in (["public"], ["private"], ["protected"]):
            head = []
        else:
            if token in "([":
                depth += 1
            elif token in ")]":
                depth = max(0, depth - 1)
            elif token in "{}":
                continue  # braces inside parentheses: a lambda or an initializer
            if not head:
                head_line = line
            head.append(token)


def duplicates(src):
    """{qualified name: [file:line, ...]} of types that more than one file defines."""
    places = collections.defaultdict(dict)
    for file in sorted(src.rglob("*")):
        if file.suffix not in SUFFIXES or file.relative_to(src).as_posix().startswith(VARIANTS):
            continue
        for name, line, alias in definitions(file.read_text(errors="replace")):
            places[name].setdefault(file, (line, alias))
    return {name: [f"{file}:{line}" for file, (line, _) in files.items()] for name, files in places.items()
            if len(files) > 1 and (len({alias for _, alias in files.values()}) > 1 or None in {a for _, a in files.values()})}


if __name__ == "__main__":
    found = duplicates(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src"))
    for name, where in sorted(found.items()):
        print(f"{name} is defined in {' and '.join(where)}")
    sys.exit(bool(found))
