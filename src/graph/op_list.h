// The ops of the graph, one per line, for OP(name) as defined by the file that includes this: the enum, the names, and
// the tables of those backends that have a function per op. UNARY_OP, by default OP, is an op of one activation that is
// computed element by element, with at most one float as parameter. [T] is one row per token of the step, [R] one row
// per requested output; `?` is optional.
#ifndef UNARY_OP
#define UNARY_OP(name) OP(name)
#endif

OP(embed)      // table -> [T, dim]: the row of each token
OP(hidden_in)  // -> [T, dim]: hidden states passed with the step (draft graphs)
OP(linear)     // x [.., in], weight [out, in], bias? [out] -> [.., out]
OP(norm)       // x, weight? -> x's shape: each innermost row normalized
OP(rope)  // x [T, heads, head_dim], freq_factors? [n_dims/2], long_factors? [n_dims/2] -> same: rotated by position
OP(attention)    // q [T, heads, k_dim], k? [T, kv_heads, k_dim], v? [T, kv_heads, v_dim], sinks? [heads] -> [T,
                 //   heads*v_dim]
OP(gated_act)    // gate, up -> up's shape: act(gate) * up; a gate of width 1 is broadcast over the row
OP(moe_route)    // logits [T, experts] -> ids [T, used], weights [T, used]
OP(moe_linear)   // x [T, in] or [T, used, in], weight [experts, out, in], ids, bias? [experts, out], scale? [experts]
                 //   -> [T, used, out]
OP(moe_combine)  // x [T, used, dim], weights [T, used] -> [T, dim]
OP(short_conv)   // x [T, channels], weight [channels, taps] -> same: causal convolution over time, then SiLU
OP(delta_net)    // q, k [T, k_heads, k_dim], v [T, v_heads, v_dim], alpha, beta [T, v_heads], dt_bias, a [v_heads] ->
                 //   [T, v_heads, v_dim]: gated delta rule over the layer's recurrent state
OP(add)          // a, b -> a's shape
OP(mul)          // x, weight [inner] or [1] -> x's shape

UNARY_OP(scale)    // x -> x * factor
UNARY_OP(softcap)  // x -> cap * tanh(x / cap)
UNARY_OP(relu2)    // x -> max(x, 0)^2: squared ReLU

OP(view)    // x -> same elements, other inner shape
OP(slice)   // x [.., n] -> [.., length]: part of each innermost row
OP(concat)  // a [.., n], b [.., m] -> [.., n + m]
OP(rows)    // gather_rows: x [T, ..] -> [R, ..], the rows whose outputs are requested
OP(sample)  // logits [R, vocab] -> ids [R]: argmax, the lowest id on ties

#undef UNARY_OP
