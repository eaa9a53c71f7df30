"""Replicated runs, whatever the model: how they are played, kept, averaged and drawn.

``runner``      plays numbered runs on several threads and hands them over in order
``store``       keeps finished runs in a folder and finds them again
``result``      what an experiment found: queue lengths, regret, paired differences
``statistics``  means over runs with their intervals
``plot``        curves with bands
"""
