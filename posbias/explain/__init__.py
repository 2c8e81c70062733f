"""One prompt of a user's own: what its tokens and its parts do, beside what their places do in any prompt."""
