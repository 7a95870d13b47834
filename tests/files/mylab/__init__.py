"A laboratory's own package: mechanisms and simulators that the files here name."
