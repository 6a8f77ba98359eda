select	1 -- ;
/* ; /* nested */ */;;select U&"d\0061t\+000061", müller, 🎈 from "Ünïcode"; selec 1; select 'open
