#!/usr/bin/env bash
# Builds the documentation into build/site; a warning is an error:
#     scripts/build_docs.sh PYTHON
# The pages are those of docs/, the READMEs of the experiments and three files of the root, whose links to
# each other are adapted. The outer folders install below tfr_moe, so the API pages are read from a tree of
# links that looks like the installed package.
set -euo pipefail
cd "$(dirname "$0")/.."

source=build/docs-source/tfr_moe
pages=build/docs-pages
rm -rf build/docs-source "$pages"
mkdir -p "$source" "$pages"
ln -s "$PWD"/tfr_moe/* "$source"/
ln -s "$PWD"/beam "$PWD"/serving "$PWD"/tuning "$source"/

cp -R docs/. BUILD_NOTES.md CHANGELOG.md CONTRIBUTING.md "$pages"/
git ls-files experiments | grep -E '\.(md|png|svg)$' | while read -r file; do
    mkdir -p "$pages/$(dirname "$file")"
    cp "$file" "$pages/$file"
done
find "$pages" -name '*.md' -exec sed -i.bak -E \
    -e 's#\]\(\.\./(experiments/|[A-Z_]+\.md)#](\1#g' \
    -e 's#\]\(((\.\./)*)\.\./docs/#](\1../#g' \
    -e 's#\]\(docs/#](#g' {} +
find "$pages" -name '*.bak' -delete

# Without --quiet, under which --strict counts no warnings.
NO_MKDOCS_2_WARNING=1 "${1:-python}" -m mkdocs build --strict
