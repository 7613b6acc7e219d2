#include "textflag.h"

// func special(p *[64]byte) uint64
//
// A bit for each byte that is a quote, a backslash, a control character or beyond ASCII. SSE2 alone, which every amd64
// machine has: two comparisons, an unsigned minimum for what is below 0x20, and the byte's own high bit.
TEXT ·special(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ $0x2222222222222222, BX
	MOVQ BX, X8
	PUNPCKLQDQ X8, X8
	MOVQ $0x5c5c5c5c5c5c5c5c, BX
	MOVQ BX, X9
	PUNPCKLQDQ X9, X9
	MOVQ $0x1f1f1f1f1f1f1f1f, BX
	MOVQ BX, X10
	PUNPCKLQDQ X10, X10

#define BLOCK(offset, out) \
	MOVOU offset(AX), X0; \
	MOVO X0, X1; \
	PCMPEQB X8, X1; \
	MOVO X0, X2; \
	PCMPEQB X9, X2; \
	MOVO X0, X3; \
	PMINUB X10, X3; \
	PCMPEQB X0, X3; \
	POR X1, X2; \
	POR X0, X3; \
	POR X2, X3; \
	PMOVMSKB X3, out

	BLOCK(0, CX)
	BLOCK(16, DX)
	BLOCK(32, SI)
	BLOCK(48, DI)
	SHLQ $16, DX
	SHLQ $32, SI
	SHLQ $48, DI
	ORQ DX, CX
	ORQ DI, SI
	ORQ SI, CX
	MOVQ CX, ret+8(FP)
	RET
