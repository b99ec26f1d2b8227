# To be sourced in this folder with $venv set: makes that virtual environment, with torch in it, and `install`.
python="${PYTHON:-python3}"
"$python" -m venv "$venv"

install() {
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# torch first and alone: a later package must not pull another build of it.
install "$(grep '^torch==' avalanche-constraints.txt)"
