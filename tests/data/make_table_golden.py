#!/usr/bin/env python3
"""Writes tests/data/table_golden: CSV files as Python's csv module writes them, with the records it
reads back (records.json), and a table (people.csv) with what numpy makes of it under the rules of
ls_table_schema_learn (people.json: target "income", then target "job"). Run with numpy; the files are
checked in, so tests do not need it."""
import csv
import json
import os
import random

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "table_golden")
MISSING = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"}
PARTS = ["a", "bc", "7", "-1.5e3", "é", "设备", "x y", "say \"hi\"", "\"", "a,b", "c;d", "e\tf", "two\nlines", "three\r\nlines", "'", "", "#"]


def write_records():
    r = random.Random(3)
    files = []
    for i, (delimiter, end, quoting) in enumerate(
            [(",", "\r\n", csv.QUOTE_MINIMAL), (",", "\n", csv.QUOTE_ALL), (";", "\n", csv.QUOTE_MINIMAL), ("\t", "\r\n", csv.QUOTE_NONNUMERIC)]):
        rows = [["name%d" % k for k in range(5)]]
        rows += [["".join(r.choice(PARTS) for _ in range(r.randint(0, 3))) for _ in range(5)] for _ in range(30)]
        name = "records%d.csv" % i
        with open(os.path.join(FOLDER, name), "w", newline="") as f:
            if i == 1:
                f.write("\ufeff")
            csv.writer(f, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
        with open(os.path.join(FOLDER, name), newline="", encoding="utf-8-sig") as f:
            files.append({"file": name, "records": list(csv.reader(f, delimiter=delimiter))})
    with open(os.path.join(FOLDER, "records.json"), "w") as f:
        json.dump(files, f, ensure_ascii=True, indent=None)
        f.write("\n")


def write_people():
    r = random.Random(5)
    rows = [["id", "age", "height", "city", "job", "income"]]
    for i in range(40):
        rows.append([str(1000 + i), r.choice(["", "NA", "?"]) if r.random() < 0.2 else str(r.randint(18, 90)),
                     "%.2f" % r.gauss(1.7, 0.1), r.choice(["Kiel", "Köln", "Bonn, Beuel", "", "Ulm"]), r.choice(["cook", "baker", "smith"]),
                     "%.3e" % (r.gauss(3e4, 8e3))])
    with open(os.path.join(FOLDER, "people.csv"), "w", newline="") as f:
        csv.writer(f).writerows(rows)
    return rows


def expect(rows, target, drop):
    header, body = rows[0], rows[1:]
    numbers, flags, categories, sizes, out = [], [], [], [], {}
    for j, name in enumerate(header):
        values = [row[j] for row in body]
        present = [v for v in values if v not in MISSING]
        if name in drop:
            continue
        try:
            x = np.array([float(v) for v in present])
        except ValueError:
            vocabulary = sorted(set(present), key=lambda v: v.encode())
            if name == target:
                out["classes"] = vocabulary
                out["target"] = [vocabulary.index(v) for v in values]
            else:
                sizes.append(len(vocabulary) + 1)
                categories.append([0 if v in MISSING else 1 + vocabulary.index(v) for v in values])
            continue
        mean, deviation = x.mean(), x.std()
        z = [0.0 if v in MISSING else (float(v) - mean) / deviation for v in values]
        if name == target:
            out.update(mean=mean, deviation=deviation, target=z)
        else:
            numbers.append(z)
            flags.append([float(v in MISSING) for v in values])
    out["numbers"] = np.array(numbers + flags).T.tolist()
    out["categories"] = np.array(categories).T.tolist()
    out["sizes"] = sizes
    return out


def main():
    write_records()
    rows = write_people()
    result = [dict(expect(rows, "income", {"id"}), options="income"), dict(expect(rows, "job", {"id", "income"}), options="job")]
    with open(os.path.join(FOLDER, "people.json"), "w") as f:
        json.dump(result, f)
        f.write("\n")


main()
