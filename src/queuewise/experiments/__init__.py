"""Experiments on top of the wings: reproductions of papers, comparisons described in a file, and the demo.

``registry``
    every reproduction by name
``papers``
    one file per figure: settings, claims, drawing
``claims``
    what a paper claims, measured, with simultaneous intervals and a verdict
``description``, ``schema``, ``usercode``
    experiments of the user's own: what a TOML file may say, the same as JSON Schema, and rules from Python files
``compare``, ``sweep``
    playing them and ranking the policies; the same split over machines, and merged
``demo``
    WISE's Figure 1 in small, and the same policies on classifiers of handwritten digits
``doctor``
    whether an installation works
``report``
    tables as text, Markdown and JSON, and progress with time left
"""
