#!/bin/sh
# Every command has a manual page, every flag that its --help shows is in that page, and with the same default. Where scdoc is missing
# there are no pages to look at.
set -u
command -v scdoc >/dev/null || { echo "scdoc is not here"; exit 0; }
exec python3 - "$LS_BINARY_DIR/bin/lockstep" "$LS_BINARY_DIR/man" <<'END'
import re, subprocess, sys
lockstep, man = sys.argv[1:]
bad = []

def run(*words):
    return subprocess.run([lockstep, *words, "--help"], capture_output=True, text=True, check=True).stdout

def default(text):
    found = re.search(r"\(default ([^)]*)\)", text)
    return found.group(1) if found else None

def flags_of_help(text):
    """flag -> its default"""
    lines, flags = text.split("\n"), {}
    for i, line in enumerate(lines):
        flag = re.match(r"  (--[a-z0-9-]+)", line)
        if not flag:
            continue
        rest = [line]
        for more in lines[i + 1:]:
            if not more.startswith("     "):
                break
            rest.append(more)
        flags[flag.group(1)] = default(re.sub(r"\s+", " ", " ".join(rest)))
    return flags

def flags_of_page(text):
    """The same of a page in roff: a line that begins with the flag, then its indented text."""
    text = re.sub(r"\\f.|\\&|\\", "", re.sub(r"\\-", "-", text))
    parts = re.split(r"\n(--[a-z0-9-]+)[^\n]*\n\.RS 4\n", text)
    return {parts[i]: default(re.sub(r"\s+", " ", parts[i + 1].split("\n.RE")[0])) for i in range(1, len(parts), 2)}

overview = open(f"{man}/lockstep.1").read().replace("\\", "")
commands = re.findall(r"^  lockstep ([a-z]+(?: [a-z]+)?)  ", run(), re.M)
for words in commands:
    page = "checkpoint" if words.startswith("checkpoint") else words.replace(" ", "-")
    try:
        there = flags_of_page(open(f"{man}/lockstep-{page}.1").read())
    except FileNotFoundError:
        bad.append(f"lockstep {words}: no page lockstep-{page}(1)")
        continue
    if f"lockstep-{page}" not in overview:
        bad.append(f"lockstep {words}: lockstep(1) does not name its page")
    for flag, fallback in flags_of_help(run(*words.split())).items():
        if flag not in there:
            bad.append(f"lockstep {words} {flag}: not in lockstep-{page}(1)")
        elif there[flag] != fallback:
            bad.append(f"lockstep {words} {flag}: default {fallback} in --help, {there[flag]} in lockstep-{page}(1)")
if not commands:
    bad.append("no commands in lockstep --help")
print("\n".join(bad))
sys.exit(bool(bad))
END
