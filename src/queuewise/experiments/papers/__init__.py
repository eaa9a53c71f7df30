"""Figures of the papers, one file each: settings, claims, drawing."""
