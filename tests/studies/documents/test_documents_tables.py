"""Orders in which documents are put, beside LangChain's own; what tables say, the chapter prints."""

from studies.documents import tables


def test_orders_are_permutations_and_move_what_is_best_to_the_ends():
    for order, place in tables.ORDERS.items():
        assert sorted(place(8)) == list(range(8)), order
    # LangChain's own loop, on documents ranked 0 to 7
    langchain = []
    for k, document in enumerate(reversed(range(8))):
        langchain.append(document) if k % 2 else langchain.insert(0, document)
    places = tables.ORDERS["both ends, best last"](8)
    assert langchain[-1] == 0 and langchain[0] == 1 and [langchain.index(k) for k in range(8)] == places.tolist()
