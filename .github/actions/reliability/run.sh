#!/usr/bin/env bash
# Judge responses, write the report, check the limits and comment on the pull request. Reads INPUT_* variables.
set -euo pipefail

# The keys are exported to the one command that needs them and to no other; nothing prints them.
api_key=${INPUT_API_KEY:-} token=${INPUT_GITHUB_TOKEN:-}
unset INPUT_API_KEY INPUT_GITHUB_TOKEN

if [[ -n ${INPUT_VERSION:-} ]]; then
  python -m pip install --quiet "eclose[prices]==$INPUT_VERSION"
fi

if [[ -n ${INPUT_RESPONSES:-} ]]; then
  variable=${INPUT_API_KEY_VARIABLE:-OPENAI_API_KEY}
  if [[ ! $variable =~ ^[A-Z][A-Z0-9_]*_API_KEY$ ]]; then
    echo "api-key-variable: use a name that ends with _API_KEY, such as OPENAI_API_KEY." >&2
    exit 2
  fi
  reading=()
  if [[ -n ${INPUT_INSTANCES:-} ]]; then reading+=("--instances=$INPUT_INSTANCES"); fi
  if [[ -n ${INPUT_FORMAT:-} ]]; then reading+=("--format=$INPUT_FORMAT"); fi
  if [[ -n ${INPUT_TRACE:-} ]]; then reading+=("--trace=$INPUT_TRACE"); fi
  while read -r assignment; do
    if [[ -n $assignment ]]; then reading+=("--map=$assignment"); fi
  done <<<"${INPUT_MAP:-}"
  judged=0
  (
    export "$variable=$api_key"
    eclose judge "$INPUT_RESPONSES" "${reading[@]}" --judge "$INPUT_JUDGE" --out "$INPUT_RUN" --budget "$INPUT_BUDGET"
  ) || judged=$?
  # 3: some labels are missing. The gate counts them in the worse way, and max-unjudged limits them.
  if [[ $judged -ne 0 && $judged -ne 3 ]]; then
    exit "$judged"
  fi
fi

limits=()
while read -r name value rest; do
  [[ -z $name ]] && continue
  if [[ ! $name =~ ^(min|max)-[a-z-]+$ || ! $value =~ ^[0-9.]+$ || -n $rest ]]; then
    echo "limits: write one a line, such as: min-trr 0.85" >&2
    exit 2
  fi
  limits+=("--$name" "$value")
done <<<"$INPUT_LIMITS"

against=()
if [[ -n ${INPUT_AGAINST:-} ]]; then
  against=(--against "$INPUT_AGAINST")
fi
eclose diagnose "$INPUT_RUN" "${against[@]}"

address=${INPUT_REPORT_URL:-$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID}
comment=$INPUT_RUN/report/comment.md
arguments=("$INPUT_RUN" "${against[@]}" "${limits[@]}" --comment "$comment" --report-url "$address")
if [[ -n ${INPUT_UNDECIDED:-} ]]; then
  arguments+=(--undecided "$INPUT_UNDECIDED")
fi
code=0
eclose gate "${arguments[@]}" || code=$?
case $code in
  0) outcome=passed ;;
  100) outcome=failed ;;
  101) outcome=undecided ;;
  # Anything else is a gate that could not run: there is no comment to post.
  *) exit "$code" ;;
esac

{
  echo "outcome=$outcome"
  echo "report=$INPUT_RUN/report"
} >>"$GITHUB_OUTPUT"
cat "$comment" >>"$GITHUB_STEP_SUMMARY"

if [[ ${INPUT_COMMENT:-true} == true && -n ${PULL_REQUEST:-} && -n $token ]]; then
  (
    export GH_TOKEN=$token
    comments=repos/$GITHUB_REPOSITORY/issues
    # One comment a pull request, found by its first line: a later run replaces it.
    mark='.[] | select(.body | startswith("<!-- eclose reliability -->")) | .id'
    earlier=$(gh api --paginate "$comments/$PULL_REQUEST/comments" --jq "$mark" | head -n 1)
    if [[ -n $earlier ]]; then
      gh api --method PATCH "$comments/comments/$earlier" --field "body=@$comment" --silent
    else
      gh api --method POST "$comments/$PULL_REQUEST/comments" --field "body=@$comment" --silent
    fi
  ) || echo "::warning::The comment could not be written; it is in the summary of this run."
fi
exit "$code"
