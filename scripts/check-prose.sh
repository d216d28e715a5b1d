#!/usr/bin/env bash
# Finds phrases that docs/style.md rules out, in Markdown and in the comments and strings of Rust, SQL and shell files.
# usage: check-prose.sh [PATH…]   checks the tracked files below the paths; without paths, all tracked files
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

# One extended regular expression a line. Each matches only phrases that have no good use here: "where" for a place, or
# "goes on" before a noun ("goes on the stack"), stays possible.
phrases='//[/!] Where (there|nobody|nothing|none|one|it|they|neither)\b
//[/!] Where [a-z`_]+ (is|are|was|has|panics|cannot|fails)\b
\bwhere there (is|are|was|were) (no|none|one|nothing|neither)\b
\bwhere (nobody|nothing|none|neither|no) [a-z]
\b(came|comes) to (nothing|the same|what)\b
\bwhat (a|an|it|its|the|this|each|that) ?[a-z]* (came|comes|come) to\b
\bwould have come to\b
\b(goes|went|going|gone) on (as|after|from|under|where|until|while|then|when|by|again|beyond|with)\b
\b(goes|went|gone) on[.,;:)]
\b(stands|stood) in (for|where|\[|`|the|a|its|this)
\bstanding in for\b
\bunless (it is )?said\b
\bsaid otherwise\b
\b(nobody|no one) (can|could|knows|asked|needs|reads|writes|waits|wants|has|had|is)\b
([^e]|[^r]e) (is|are) no (backup|folder|file|number|numbers|prompt|rule|way|log|run|error|verdict|version|group|whole|good|group.s|name|token|directory|panic|JSON|text|place|longer one|such)\b
\b(of|in) which (nobody|no one)\b
\bas far as (it|that) (goes|got|went|is sealed)\b'

[ $# -gt 0 ] || set -- .
# The style page quotes the phrases; the licences are not ours to rewrite.
found=$({
    git grep -nIE -f <(printf '%s\n' "$phrases") -- "$@"
    # A section of rustdoc that begins with "Where" means "if".
    git grep -nIE -A1 '//[/!] # (Panics|Errors)$' -- "$@" | sed -nE 's/^([^:]+\.rs)-([0-9]+)-( *\/\/[/!] Where )/\1:\2:\3/p'
} | grep -E '^[^:]+\.(md|rs|sql|sh|py|toml):' | grep -vE '^(docs/style\.md|scripts/check-prose\.sh):' | sort -u)
if [ -n "$found" ]; then
    echo "$found"
    echo "$(printf '%s\n' "$found" | wc -l) phrases that docs/style.md rules out; the page shows what to write instead" >&2
    exit 1
fi
