"""Serves exported tasks over HTTP: a request's samples → batches of one task → answers in the task's words.

exported.py reads a folder of exports, network.py runs one of them, inputs.py and answers.py translate, batches.py puts
together what waits, app.py speaks HTTP, server.py opens the port. Nothing here needs torch.
"""
