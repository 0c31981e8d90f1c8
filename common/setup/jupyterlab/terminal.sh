# The start file of JupyterLab's terminals: the course's Python first, whatever other start files say.
PATH=$COURSE_PATH
PS1='\w \$ '
unset PROMPT_COMMAND MAKELEVEL MAKEFLAGS PYTHONHOME
export PATH
