"""Liu et al.'s questions about Wikipedia's passages: is the middle lost where a search found the documents?"""
