"""The pages themselves: routes, templates and answers in JSON; knows sources and access by their protocols alone."""
