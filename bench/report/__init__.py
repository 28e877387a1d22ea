"""Tables, plots and pages from what analysis found."""
