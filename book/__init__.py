"""The course as a site: pages, moving figures and the API, made from the sources of the labs."""
