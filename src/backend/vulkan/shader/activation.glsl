// Activation functions. Every kernel uses these, so that results are bit-identical everywhere.
float sigmoid(float x) {
  precise float y = 1.0 / (1.0 + exp(-x));
  return y;
}

// The built-in tanh overflows on some devices for large arguments.
float bounded_tanh(float x) {
  precise float y = 1.0 - 2.0 / (exp(2.0 * clamp(x, -15.0, 15.0)) + 1.0);
  return y;
}

float gated(int act, float gate, float up) {
  precise float y;
  if (act == kSilu) {
    y = gate * sigmoid(gate) * up;
  } else if (act == kGelu) {
    precise float inner = 0.79788456080286535588 * gate * fma(0.044715 * gate, gate, 1.0);
    y = 0.5 * gate * (1.0 + bounded_tanh(inner)) * up;
  } else if (act == kSigmoid) {
    y = sigmoid(gate) * up;
  } else {  // gpt-oss's clamped SwiGLU
    precise float g = min(gate, 7.0);
    y = g * sigmoid(1.702 * g) * (clamp(up, -7.0, 7.0) + 1.0);
  }
  return y;
}
