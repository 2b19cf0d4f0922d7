"""Rules of plain words for docstrings, pages, names and the command line's help.

`python -m tests.architecture.prose [PATHS]` prints every offence as `file:line: rule: text`, and a count of each rule.

Rules of docstrings, also in the Python of pages; in tests only the first counts:
    docstring-head: a first line begins with none of `words.FORBIDDEN_HEADS`: Of, What, Whether, How, As, The same, ...
    docstring-verb: a function's begins with a verb of `words.toml`: "Counts rows". A property may begin with a noun.
    docstring-noun: a class's, a module's and a constant's begins with a noun phrase: "A table of rows".
    entry-head: an entry of Args, Attributes, Returns or Raises begins with none of `words.ENTRY_HEADS`: "x: of rows".
    see-only: "See `X`." alone says nothing; an override without a docstring has the one of its base.
    repeats-name: a docstring says more than its name.
Rules of docstrings and pages:
    subject: no statement begins with what, those, ones, others, nobody or somebody.
    dialect: "is none", "are none" and "stands" have plainer words.
    long-sentence: a sentence of a page has at most 25 words; code in backticks is one.
Rules of names, in tests not those of local variables:
    name: no function, class, parameter, attribute or module-level name is one of `words.EMPTY_NAMES`,
        such as found, or a participle alone. Flags may be one (annotated as bool, or True or False); so may
        `field_terms` and `stored_names` of `words.toml`.
    local-name: a local variable of such a name lives three lines at most.
    of-suffix: functions are verb phrases, without `_of`.
Rules of the command line:
    cli-help: a command's help begins with a verb in the imperative.
    cli-option: an option with a value says its unit or values, and what holds by default.
"""
